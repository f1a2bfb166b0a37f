"""The outputs of a model for all texts, and the answers that they give."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from sparing.agree.model import Array, Inputs, TextModel, as_whole_numbers
from sparing.answers import Answers, Encoded, Settings
from sparing.answers.kinds import Rows
from sparing.answers.spans import in_windows
from sparing.core.errors import DataError, NotFinite, Unsupported, UsageError, listed, quoted
from sparing.measure.machine import threads as pinned
from sparing.tasks.shared.text import pad_of
from sparing.tasks.texts import Texts
from sparing.tasks.texts.task import require_vocabulary, unknown_note

GENERIC = "LABEL_"
Progress = Callable[[float], None]


class Encoder:
    """Texts as token numbers for one model, by its tokenizer.

    Texts are cut to its limit; passages that are longer are read in windows.
    """

    def __init__(self, model: TextModel, texts: Texts) -> None:
        self.model, self.texts = model, texts
        self.places = model.answer.by_token and getattr(model.tokenizer, "is_fast", False)
        self.in_windows = self.places and model.answer.name == "span"
        self.pad = pad_of(model.tokenizer)

    def encode(self, index: int) -> Encoded:
        """The tokens of one row; where its tokens have answers, their places too."""
        first, *rest = self.texts.rows[index]
        row = (self.model.prompt + first, *rest)
        more = {"return_offsets_mapping": True} if self.places else {}
        where = f"{self.texts.source}: row {index + 1}"
        limit = self.model.limit
        if self.in_windows:
            limit, more = None, {**more, "verbose": False}  # it would warn of long rows
        encoded = self.model.answer.encode(self.model.tokenizer, row, limit, where, **more)
        values = {name: list(row) for name, row in encoded.items() if name in self.model.takes}
        if not values.get("input_ids"):
            raise DataError(f"{self.texts.source}: row {index + 1} has no tokens")
        for name in self.model.takes:
            if name == "token_type_ids" and name not in values:
                values[name] = [0] * len(values["input_ids"])
        if not self.places:
            return Encoded(values)
        offsets = [(int(start), int(end)) for start, end in encoded["offset_mapping"]]
        made = Encoded(values, offsets, encoded.sequence_ids(0), encoded.word_ids(0))
        if not self.in_windows or self.model.limit is None:
            return made
        return in_windows(made, self.model.limit, where)

    def inputs(self, indices: Sequence[int]) -> list[Inputs]:
        """These rows as one batch, tokenised now; as several where they have more windows."""
        read = [part for index in indices for part in self.encode(index).read]
        return [made for _, made in self.batches(read, len(indices))]

    def batches(self, rows: Sequence[Encoded], size: int) -> Iterator[tuple[int, Inputs]]:
        """Batches of so many rows, and how many of each are given: a file may fix the size."""
        for start in range(0, len(rows), size):
            part = [*rows[start : start + size]]
            missing = size - len(part) if self.model.batch is not None else 0
            yield len(part), self.batch([*part, *part[-1:] * missing])

    def is_cut(self, encoded: Encoded) -> bool:
        """Whether a row is as long as the limit, so that it may be cut."""
        limit = self.model.limit
        return limit is not None and len(encoded) >= limit and not self.in_windows

    def notes(self, encoded: Sequence[Encoded]) -> list[str]:
        """Notes on texts as long as the limit, on windows, and on unknown tokens.

        Raises ``UsageError`` for token numbers beyond the model's.
        """
        name, limit, size = self.model.name, self.model.limit, self.model.vocabulary
        ids = [torch.tensor(row.values["input_ids"]) for row in encoded]
        if size is not None:
            require_vocabulary(ids, size, self.model.tokenizer)
        long = sum(map(self.is_cut, encoded))
        notes = [f"{name}: {long:,} texts reach its {limit} tokens and may be cut"] if long else []
        several = sum(bool(row.windows) for row in encoded)
        if several:
            words = f"{several:,} passages are longer than its {limit} tokens"
            notes.append(f"{name}: {words}; the best answer in all of their windows counts")
        return [
            *notes,
            *(f"{name}: {note}" for note in unknown_note(ids, self.model.tokenizer)),
        ]

    def batch(self, rows: Sequence[Encoded]) -> Inputs:
        """Rows as one batch, padded on the right to the longest or to the file's width."""
        width = self.model.width or max(map(len, rows))
        fills = {"input_ids": self.pad}
        return {
            name: as_whole_numbers([row.values[name] for row in rows], width, fills.get(name, 0))
            for name in rows[0].values
        }


def outputs_of(
    encoder: Encoder,
    encoded: Sequence[Encoded],
    *,
    batch: int = 1,
    threads: int = 1,
    on_progress: Progress = lambda fraction: None,
) -> list[Array]:
    """The model's output for each text, in batches of neighbours; that of pads is left out.

    Of a text in windows it is their tokens' outputs, one window after another. Raises ``NotFinite``
    for outputs that are not finite, naming the text.
    """
    outputs: list[list[Array]] = [[] for _ in encoded]
    model, texts = encoder.model, encoder.texts
    owners = [index for index, row in enumerate(encoded) for _ in row.read]
    read, done = [part for row in encoded for part in row.read], 0
    with pinned(threads):
        for count, inputs in encoder.batches(read, batch):
            numbers = range(done, done + count)
            for number, output in zip(numbers, model.run(inputs), strict=False):
                index = owners[number]
                used = output[: len(read[number])] if model.answer.by_token else output
                if not np.isfinite(used).all():
                    raise NotFinite(
                        f"{model.name} gives outputs that are not finite for text {index + 1}: "
                        f"{quoted(' | '.join(texts.rows[index]), 80)}"
                    )
                outputs[index].append(used.astype(np.float64))
            done += count
            on_progress(done / len(read))
    return [made[0] if len(made) == 1 else np.concatenate(made) for made in outputs]


def require_batch(model: TextModel, batch: int) -> None:
    """Raise ``UsageError`` where a file fixes another number of texts in a batch."""
    if model.batch not in (None, batch):
        raise UsageError(
            f"{model.name} answers {model.batch} texts at a time: give --batch {model.batch}, or "
            "export it with a free batch"
        )


@dataclass(frozen=True)
class Labels:
    """The labels of answers in their order, and the columns of a model's outputs in that order."""

    names: tuple[str, ...]
    columns: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()


def labels_of(first: Labels | None, count: int, model: TextModel) -> Labels:
    """The labels of a model with so many outputs, in the order of the first one's.

    Labels with the same names in another order are put in the first one's. Raises ``UsageError``
    for another number of labels or other names, and ``Unsupported`` for a number as the answer.
    """
    names = model.labels or tuple(f"{GENERIC}{number}" for number in range(count))
    if len(names) != count:
        raise UsageError(
            f"{model.name} gives {count} logits a text, and its configuration names {len(names)} "
            "classes"
        )
    if count == 1 and model.answer.name == "class":
        raise Unsupported(
            f"{model.name} gives one number a text, and no configuration says what it is: put its "
            "config.json beside it"
        )
    if first is None:
        return Labels(names)
    if len(names) != len(first.names):
        raise UsageError(f"{model.name} has {count} classes, the other {len(first.names)}")
    plain, expected = ([name.strip().lower() for name in one] for one in (names, first.names))
    if plain == expected:
        return Labels(first.names)
    if sorted(plain) == sorted(expected) and len(set(plain)) == len(plain):
        note = f"{model.name} has the same classes in another order; they are matched by name"
        return Labels(first.names, tuple(plain.index(name) for name in expected), (note,))
    if _generic(names) or _generic(first.names):
        note = f"{model.name}: classes are matched by number, as one side does not name them"
        return Labels(first.names if _generic(names) else names, notes=(note,))
    raise UsageError(
        f"{model.name} has the classes {listed(names)}, the other {listed(first.names)}: give "
        "both the same id2label"
    )


def answers_of(
    model: TextModel,
    encoder: Encoder,
    encoded: Sequence[Encoded],
    outputs: Sequence[Array],
    labels: Labels,
    settings: Settings,
) -> Answers:
    """A model's answers to all texts, read off its outputs."""
    if labels.columns:
        outputs = [output[..., list(labels.columns)] for output in outputs]
    texts = encoder.texts
    rows = Rows(outputs, encoded, texts.rows, texts.source, labels.names, settings)
    return model.answer.read(rows)


def _generic(labels: Sequence[str]) -> bool:
    return all(label == f"{GENERIC}{number}" for number, label in enumerate(labels))
