"""What a worker does: it opens the model once, and answers the rows of one shard at a time.

The result is the content of a file. The driver alone writes: a full disk ends one process, a killed
worker leaves nothing behind, and workers on other machines need no common folder.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from sparing.agree.model import TextModel, open_text_model
from sparing.agree.outputs import Encoder, Labels, labels_of, outputs_of, require_batch
from sparing.answers import Encoded, Settings
from sparing.answers.kinds import Rows, require_settings
from sparing.core.errors import (
    DataError,
    NotFinite,
    Unsupported,
    UsageError,
    lacks_memory,
    one_line,
)
from sparing.core.paths import expanded
from sparing.core.reading import open_plain
from sparing.predict.columns import ERROR, FILE, ROW, answer_types, copied_names, values_of
from sparing.predict.inputs import NumberedRow
from sparing.predict.shards import Layout, layout_of
from sparing.tasks.texts import Texts

SORTED = 2048  # rows that are sorted by length together: tokens of more would fill the memory
SOURCE = "the text"
BESIDE = ("config", "tokenizer", "vocab", "special_tokens", "modules", "sentence", "spiece")


@dataclass(frozen=True)
class Plan:
    """What every worker must know: the model's path or name, and how rows are answered.

    ``columns`` are how many texts a row has. ``copied`` are further columns, of arrow types.
    """

    model: str
    columns: int
    copied: tuple[str, ...]
    copied_types: tuple[Any, ...]
    batch: int
    format: str
    threshold: float | None
    probabilities: bool


@dataclass(frozen=True)
class Facts:
    """What a model turned out to be; ``digest`` is of its files, ``columns`` of the output."""

    engine: str
    answer: str
    digest: str
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Shard:
    """An answered shard: the content of its file, its rows and errors, and texts that are cut."""

    number: int
    content: bytes
    rows: int
    errors: int
    cut: int
    first_error: str


def describe(plan: Plan) -> Facts:
    """Open the model in this worker and check that it fits the rows and the settings."""
    served = _opened(plan)
    columns = tuple(served.layout.types)
    engine, answer = served.model.engine, served.model.answer.name
    return Facts(engine, answer, digest_of(plan.model), columns)


def answer(plan: Plan, number: int, rows: Sequence[NumberedRow]) -> Shard:
    """Answer the rows of one shard; a row that cannot be answered has the reason as its error."""
    return _opened(plan).shard(number, rows)


_OPENED: dict[Plan, Served] = {}


def _opened(plan: Plan) -> Served:
    if plan not in _OPENED:
        _OPENED.clear()  # models are large
        _OPENED[plan] = Served(plan)
    return _OPENED[plan]


class Served:
    """A model that answers rows by a plan.

    Raises ``UsageError`` for settings of another kind of answer and for a file that fixes another
    batch, ``DataError`` for rows of another number of texts.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.model: TextModel = open_text_model(plan.model, threads=1)
        kind = self.model.answer
        if self.model.tokenizer is None:
            raise UsageError(f"{plan.model} comes without a tokenizer: put its files beside it")
        require_batch(self.model, plan.batch)
        require_settings(kind, Settings(plan.threshold))
        kind.require_rows([(SOURCE,) * plan.columns], "the input")
        most = 0.0 if kind.name == "number" else None  # numbers, not orders of documents
        self.settings = Settings(plan.threshold, most_difference=most)

    @cached_property
    def labels(self) -> Labels:
        """The labels of its answers."""
        if not self.model.answer.labelled:
            return Labels(())
        encoder = Encoder(self.model, Texts(SOURCE, (("a",) * self.plan.columns,)))
        (output,) = outputs_of(encoder, [encoder.encode(0)], batch=self.plan.batch)
        return labels_of(None, output.shape[-1], self.model)

    @cached_property
    def layout(self) -> Layout:
        """The columns of the output."""
        plan, kind = self.plan, self.model.answer.name
        how = {"pairs": plan.columns > 1, "probabilities": plan.probabilities}
        types = answer_types(kind, self.labels.names, **how)
        copied = copied_names(plan.copied, tuple(types))
        return layout_of(copied, plan.copied_types, types, plan.format)

    def shard(self, number: int, rows: Sequence[NumberedRow]) -> Shard:
        """The answers to the rows of one shard, as the content of a file."""
        copied = list(self.layout.types)[2 : 2 + len(self.plan.copied)]
        answers, cut, broken, answered = list[dict[str, Any]](), 0, None, 0
        for start in range(0, len(rows), SORTED):
            part = _Part(self, rows[start : start + SORTED])
            answers += part.answered()
            cut, answered = cut + part.cut, answered + part.count
            broken = broken or part.broken
        if broken is not None and not answered:
            raise broken  # the model's fault, not that of the rows
        for row, values in zip(rows, answers, strict=True):
            values |= {FILE: row.file, ROW: row.row}
            values |= dict(zip(copied, row.content.more, strict=False))
        wrong = [values for values in answers if ERROR in values]
        first = f"{wrong[0][FILE]}: row {wrong[0][ROW]:,}: {wrong[0][ERROR]}" if wrong else ""
        return Shard(number, self.layout.encode(answers), len(rows), len(wrong), cut, first)


class _Part:
    """Rows that are sorted by length together.

    ``cut`` counts texts that reach the model's limit and ``count`` the answers. ``broken`` is an
    error of the model at a single row, which may be the row's fault or the model's.
    """

    def __init__(self, served: Served, rows: Sequence[NumberedRow]) -> None:
        self.served, self.rows = served, rows
        self.cut = self.count = 0
        self.broken: Exception | None = None
        self.texts = [row.content.texts or (SOURCE,) * served.plan.columns for row in rows]
        self.encoder = Encoder(served.model, Texts(SOURCE, tuple(self.texts)))
        self.values: list[dict[str, Any]] = [
            {ERROR: row.content.fault} if row.content.fault else {} for row in rows
        ]

    def answered(self) -> list[dict[str, Any]]:
        """The values of every row: an answer or an error."""
        encoded = {
            index: tokens
            for index in range(len(self.rows))
            if not self.values[index] and (tokens := self._encoded(index)) is not None
        }
        if encoded:
            self.encoder.notes([*encoded.values()])  # refuses another model's tokenizer
        order = sorted(encoded, key=lambda index: (len(encoded[index]), index))
        for start in range(0, len(order), self.served.plan.batch):
            batch = order[start : start + self.served.plan.batch]
            self._answer({index: encoded[index] for index in batch})
        return self.values

    def _encoded(self, index: int) -> Encoded | None:
        try:
            tokens = self.encoder.encode(index)
        except DataError as error:
            where = f"{SOURCE}: row {index + 1}"
            self.values[index] = {ERROR: str(error).removeprefix(where).lstrip(": ")}
            return None
        self.cut += self.encoder.is_cut(tokens)
        return tokens

    def _answer(self, batch: dict[int, Encoded]) -> None:
        """Answer a batch, and where that fails each of its rows alone."""
        try:
            answers = self._answers(batch)
        except Unsupported:
            raise
        except Exception as error:  # the engines' own errors share no base class
            if lacks_memory(error):
                raise
            if len(batch) == 1:
                self._fail(next(iter(batch)), error)
                return
            for index, tokens in batch.items():
                self._answer({index: tokens})
            return
        self.count += len(batch)
        for index, values in zip(batch, answers, strict=True):
            self.values[index] = values

    def _answers(self, batch: dict[int, Encoded]) -> list[dict[str, Any]]:
        served, encoded = self.served, [*batch.values()]
        outputs = outputs_of(self.encoder, encoded, batch=served.plan.batch)
        texts = [self.texts[index] for index in batch]
        rows = Rows(outputs, encoded, texts, SOURCE, served.labels.names, served.settings)
        kind = served.model.answer
        answers = kind.read(rows)
        return values_of(kind.name, answers, probabilities=served.plan.probabilities)

    def _fail(self, index: int, error: Exception) -> None:
        if isinstance(error, NotFinite):
            reason = "the model gives outputs that are not finite"
        else:
            reason = one_line(str(error)) or type(error).__name__
        if not isinstance(error, NotFinite | DataError):
            self.broken = self.broken or error
        self.values[index] = {ERROR: reason}


def digest_of(model: str) -> str:
    """A digest of a model's files: of all in a folder, of a file and those beside it."""
    path = expanded(model)
    if path.is_dir():
        files = [one for one in path.rglob("*") if one.is_file()]
        root = path
    elif path.is_file():
        # an exported file takes its configuration from its folder, or from the one above
        root = path.resolve().parent.parent
        files = [one for one in path.parent.glob(f"{path.stem}*") if one.is_file()]
        for folder in (path.resolve().parent, root):
            files += [one for one in folder.iterdir() if one.name.startswith(BESIDE)]
        files = [one for one in files if one.is_file()]
    else:
        return _of_hub(model)
    digest = hashlib.sha256()
    for file in sorted({one.resolve(): one for one in files}.values()):
        name = file.relative_to(root) if file.is_relative_to(root) else Path(file.name)
        digest.update(f"{name.as_posix()} {file_digest(file)}\n".encode())
    return digest.hexdigest()[:16]


def file_digest(path: Path) -> str:
    """The SHA-256 of a file's content."""
    with open_plain(path) as file:
        return hashlib.file_digest(cast(Any, file), "sha256").hexdigest()


def _of_hub(name: str) -> str:
    """The digest of the files that the hub's cache holds of a model."""
    from huggingface_hub import try_to_load_from_cache

    inside = try_to_load_from_cache(name, "config.json")
    if not isinstance(inside, str):
        raise UsageError(f"the files of {name} are not in the hub's cache: give its folder")
    return digest_of(str(Path(inside).parent))
