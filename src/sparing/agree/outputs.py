"""The outputs of a model for all texts, and the answers that they give."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from sparing.agree.model import Array, Inputs, TextModel, as_whole_numbers
from sparing.answers import Answers, Encoded, Settings
from sparing.answers.kinds import Rows
from sparing.core.errors import DataError, NotFinite, Unsupported, UsageError, listed, quoted
from sparing.measure.machine import threads as pinned
from sparing.tasks.shared.text import pad_of
from sparing.tasks.texts import Texts
from sparing.tasks.texts.task import require_vocabulary, unknown_note

GENERIC = "LABEL_"
Progress = Callable[[float], None]


class Encoder:
    """Texts as token numbers for one model, by its tokenizer, cut to its limit."""

    def __init__(self, model: TextModel, texts: Texts) -> None:
        self.model, self.texts = model, texts
        self.places = model.answer.by_token and getattr(model.tokenizer, "is_fast", False)
        self.pad = pad_of(model.tokenizer)

    def encode(self, index: int) -> Encoded:
        """The tokens of one row; where its tokens have answers, their places too."""
        first, *rest = self.texts.rows[index]
        row = (self.model.prompt + first, *rest)
        more = {"return_offsets_mapping": True} if self.places else {}
        where = f"{self.texts.source}: row {index + 1}"
        encoded = self.model.answer.encode(
            self.model.tokenizer, row, self.model.limit, where, **more
        )
        values = {name: list(row) for name, row in encoded.items() if name in self.model.takes}
        if not values.get("input_ids"):
            raise DataError(f"{self.texts.source}: row {index + 1} has no tokens")
        for name in self.model.takes:
            if name == "token_type_ids" and name not in values:
                values[name] = [0] * len(values["input_ids"])
        if not self.places:
            return Encoded(values)
        offsets = [(int(start), int(end)) for start, end in encoded["offset_mapping"]]
        return Encoded(values, offsets, encoded.sequence_ids(0), encoded.word_ids(0))

    def inputs(self, indices: Sequence[int]) -> Inputs:
        """These rows as one batch, tokenised now."""
        return self.batch([self.encode(index) for index in indices])

    def notes(self, encoded: Sequence[Encoded]) -> list[str]:
        """Notes on texts as long as the limit, and on unknown tokens.

        Raises ``UsageError`` for token numbers beyond the model's.
        """
        name, limit, size = self.model.name, self.model.limit, self.model.vocabulary
        ids = [torch.tensor(row.values["input_ids"]) for row in encoded]
        if size is not None:
            require_vocabulary(ids, size, self.model.tokenizer)
        long = sum(len(row) >= limit for row in ids) if limit is not None else 0
        notes = [f"{name}: {long:,} texts reach its {limit} tokens and may be cut"] if long else []
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

    Raises ``NotFinite`` for outputs that are not finite, naming the text.
    """
    outputs: list[Array] = []
    model, texts = encoder.model, encoder.texts
    with pinned(threads):
        for start in range(0, len(encoded), batch):
            part = [*encoded[start : start + batch]]
            missing = batch - len(part) if model.batch is not None else 0
            made = model.run(encoder.batch([*part, *part[-1:] * missing]))
            for row, output in zip(part, made, strict=False):
                used = output[: len(row)] if model.answer.by_token else output
                if not np.isfinite(used).all():
                    index = len(outputs)
                    raise NotFinite(
                        f"{model.name} gives outputs that are not finite for text {index + 1}: "
                        f"{quoted(' | '.join(texts.rows[index]), 80)}"
                    )
                outputs.append(used.astype(np.float64))
            on_progress(min(1.0, (start + batch) / len(encoded)))
    return outputs


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
