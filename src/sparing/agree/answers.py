"""The logits of a classifier for all texts, and the answers that they give."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sparing.agree.classifier import Array, Classifier, Inputs, as_whole_numbers
from sparing.core.errors import DataError, NotFinite, Unsupported, UsageError, listed, quoted
from sparing.measure.machine import threads as pinned
from sparing.tasks.shared.text import pad_of
from sparing.tasks.texts import Texts
from sparing.tasks.texts.task import require_vocabulary, unknown_note

Encoded = dict[str, list[int]]
GENERIC = "LABEL_"
Progress = Callable[[float], None]


@dataclass(frozen=True, eq=False)
class Answers:
    """The logits of one classifier (texts, classes), in the order of ``labels``.

    Where ``several``, the answer to a text is the set of labels with a probability of at least
    ``threshold``; else it is the class of the largest logit.
    """

    logits: NDArray[np.float64]
    labels: tuple[str, ...]
    several: bool
    threshold: float = 0.5

    @cached_property
    def probabilities(self) -> NDArray[np.float64]:
        """Each label's probability (texts, classes)."""
        if self.several:
            return 1 / (1 + np.exp(-np.clip(self.logits, -700, 700)))
        powers = np.exp(self.logits - self.logits.max(1, keepdims=True))
        shares: NDArray[np.float64] = powers / powers.sum(1, keepdims=True)
        return shares

    @cached_property
    def chosen(self) -> NDArray[np.bool_]:
        """Whether each label belongs to the answer (texts, classes)."""
        if self.several:
            high: NDArray[np.bool_] = self.probabilities >= self.threshold
            return high
        columns = np.arange(self.logits.shape[1])
        top: NDArray[np.bool_] = columns == self.logits.argmax(1)[:, None]
        return top

    def words(self, index: int) -> str:
        """The answer to one text: its labels, or none."""
        names = [self.labels[column] for column in np.flatnonzero(self.chosen[index])]
        return " + ".join(names) or "(none)"

    def confidence(self, index: int, columns: NDArray[np.intp]) -> float:
        """How sure the answer is in these labels: the probability of the surest decision."""
        shares = self.probabilities[index]
        if not self.several:
            return float(shares.max())
        decided = np.where(self.chosen[index], shares, 1 - shares)
        return float(decided[columns].max())


class Encoder:
    """Texts as token numbers for one classifier, by its tokenizer, cut to its limit."""

    def __init__(self, classifier: Classifier, texts: Texts) -> None:
        self.classifier, self.texts = classifier, texts
        self.options: dict[str, Any] = {"truncation": classifier.limit is not None}
        if classifier.limit is not None:
            self.options["max_length"] = classifier.limit
        self.pad = pad_of(classifier.tokenizer)

    def encode(self, index: int) -> Encoded:
        """The tokens of one row."""
        encoded = self.classifier.tokenizer(*self.texts.rows[index], **self.options)
        values = {name: list(row) for name, row in encoded.items() if name in self.classifier.takes}
        if not values.get("input_ids"):
            raise DataError(f"{self.texts.source}: row {index + 1} has no tokens")
        for name in self.classifier.takes:
            if name == "token_type_ids" and name not in values:
                values[name] = [0] * len(values["input_ids"])
        return values

    def inputs(self, indices: Sequence[int]) -> Inputs:
        """These rows as one batch, tokenised now."""
        return self.batch([self.encode(index) for index in indices])

    def notes(self, encoded: Sequence[Encoded]) -> list[str]:
        """Notes on texts as long as the limit, and on unknown tokens.

        Raises ``UsageError`` for token numbers beyond the model's.
        """
        name, limit, size = self.classifier.name, self.classifier.limit, self.classifier.vocabulary
        ids = [torch.tensor(row["input_ids"]) for row in encoded]
        if size is not None:
            require_vocabulary(ids, size, self.classifier.tokenizer)
        long = sum(len(row) >= limit for row in ids) if limit is not None else 0
        notes = [f"{name}: {long:,} texts reach its {limit} tokens and may be cut"] if long else []
        return [
            *notes,
            *(f"{name}: {note}" for note in unknown_note(ids, self.classifier.tokenizer)),
        ]

    def batch(self, rows: Sequence[Encoded]) -> Inputs:
        """Rows as one batch, padded on the right to the longest or to the file's width."""
        width = self.classifier.width or max(len(row["input_ids"]) for row in rows)
        fills = {"input_ids": self.pad}
        return {
            name: as_whole_numbers([row[name] for row in rows], width, fills.get(name, 0))
            for name in rows[0]
        }


def logits_of(
    encoder: Encoder,
    encoded: Sequence[Encoded],
    *,
    batch: int = 1,
    threads: int = 1,
    on_progress: Progress = lambda fraction: None,
) -> Array:
    """The logits for all texts (texts, classes), in batches of neighbours.

    Raises ``NotFinite`` for logits that are not finite, naming the text.
    """
    rows, classifier, texts = [], encoder.classifier, encoder.texts
    with pinned(threads):
        for start in range(0, len(encoded), batch):
            part = [*encoded[start : start + batch]]
            missing = batch - len(part) if classifier.batch is not None else 0
            made = classifier.run(encoder.batch([*part, *part[-1:] * missing]))[: len(part)]
            bad = np.flatnonzero(~np.isfinite(made).all(1))
            if len(bad):
                index = start + int(bad[0])
                raise NotFinite(
                    f"{classifier.name} gives logits that are not finite for text {index + 1}: "
                    f"{quoted(' | '.join(texts.rows[index]), 80)}"
                )
            rows.append(made)
            on_progress(min(1.0, (start + batch) / len(encoded)))
    return np.concatenate(rows).astype(np.float64)


def require_batch(classifier: Classifier, batch: int) -> None:
    """Raise ``UsageError`` where a file fixes another number of texts in a batch."""
    if classifier.batch not in (None, batch):
        raise UsageError(
            f"{classifier.name} answers {classifier.batch} texts at a time: give --batch "
            f"{classifier.batch}, or export it with a free batch"
        )


def with_labels(
    first: Answers | None, logits: Array, classifier: Classifier, threshold: float
) -> tuple[Answers, list[str]]:
    """The answers of a classifier in the order of the first one's labels, and notes on them.

    Classes with the same names in another order are put in the first one's. Raises ``UsageError``
    for another number of classes or other names, and ``Unsupported`` for a number as the answer.
    """
    count = logits.shape[1]
    labels = classifier.labels or tuple(f"{GENERIC}{number}" for number in range(count))
    if len(labels) != count:
        raise UsageError(
            f"{classifier.name} gives {count} logits a text, and its configuration names "
            f"{len(labels)} classes"
        )
    if count == 1 and not classifier.several:
        raise Unsupported(f"{classifier.name} answers with a number; agreement is of classes")
    answers = Answers(logits, labels, bool(classifier.several), threshold)
    return (answers, []) if first is None else _ordered(first, answers, classifier.name)


def _ordered(first: Answers, answers: Answers, name: str) -> tuple[Answers, list[str]]:
    if len(answers.labels) != len(first.labels):
        raise UsageError(f"{name} has {len(answers.labels)} classes, the other {len(first.labels)}")
    plain, expected = ([label.strip().lower() for label in one.labels] for one in (answers, first))
    if plain == expected:
        return replace(answers, labels=first.labels), []
    if sorted(plain) == sorted(expected) and len(set(plain)) == len(plain):
        columns = [plain.index(label) for label in expected]
        logits = answers.logits[:, columns]
        note = f"{name} has the same classes in another order; they are matched by name"
        return replace(answers, logits=logits, labels=first.labels), [note]
    if _generic(answers.labels) or _generic(first.labels):
        labels = first.labels if _generic(answers.labels) else answers.labels
        note = f"{name}: classes are matched by number, as one side does not name them"
        return replace(answers, labels=labels), [note]
    raise UsageError(
        f"{name} has the classes {listed(answers.labels)}, the other {listed(first.labels)}: "
        "give both the same id2label"
    )


def _generic(labels: Sequence[str]) -> bool:
    return all(label == f"{GENERIC}{number}" for number, label in enumerate(labels))
