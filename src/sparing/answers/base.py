"""What all kinds of answers have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sparing.core.errors import UsageError

Array = NDArray[Any]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Settings:
    """From when on answers agree, where that takes a number; None where it is not given.

    ``threshold`` is the probability from which a label is given, where there are several.
    ``least_cosine`` is that of two vectors that agree. ``most_difference`` is that of two numbers
    that agree; without it, numbers agree by their order within a query.
    """

    threshold: float | None = None
    least_cosine: float | None = None
    most_difference: float | None = None

    def __post_init__(self) -> None:
        if self.threshold is not None and not 0 < self.threshold < 1:
            raise UsageError(f"threshold must be between 0 and 1; got {self.threshold:g}")
        if self.least_cosine is not None and not -1 <= self.least_cosine <= 1:
            raise UsageError(f"least_cosine must be from -1 to 1; got {self.least_cosine:g}")
        if self.most_difference is not None and not 0 <= self.most_difference < float("inf"):
            raise UsageError(f"most_difference must be at least 0; got {self.most_difference:g}")

    def given(self) -> list[str]:
        """The names of those that are given."""
        return [name for name, value in vars(self).items() if value is not None]


@dataclass(frozen=True)
class Encoded:
    """One row as a model's inputs by name, and where its tokens are in its texts.

    ``offsets`` are the first character of each token and the one after its last. ``parts`` are the
    numbers of their texts, None for marks of the tokenizer, and ``words`` those of their words. All
    three are empty where the tokenizer does not give them. ``windows`` are the windows of a passage
    that the model reads one after another, each with the question; none where it reads the row.
    """

    values: Mapping[str, list[int]]
    offsets: Sequence[tuple[int, int]] = field(default=(), repr=False)
    parts: Sequence[int | None] = field(default=(), repr=False)
    words: Sequence[int | None] = field(default=(), repr=False)
    windows: Sequence[Encoded] = field(default=(), repr=False)

    def __len__(self) -> int:
        return len(self.values["input_ids"])

    @property
    def read(self) -> Sequence[Encoded]:
        """What the model reads at once: its windows, or the row."""
        return self.windows or (self,)


@dataclass(frozen=True)
class Finding:
    """A further number of a comparison: the name and unit of its record, and a sentence."""

    name: str
    value: float
    unit: str
    words: str


class Answers(ABC):
    """The answers of one model to rows of texts, in their order.

    What agrees is an input: a row, or for numbers a query with its rows. ``rows`` are the numbers
    of the rows of each input.
    """

    noun: ClassVar[str] = "text"
    answer: ClassVar[str] = "the same answer"

    @abstractmethod
    def __len__(self) -> int:
        """How many inputs there are."""

    @abstractmethod
    def same(self, other: Any) -> Flags:
        """Whether each input has the same answer."""

    @abstractmethod
    def words(self, index: int) -> str:
        """The answer to one input, to be read."""

    @abstractmethod
    def distance(self, other: Any) -> Array:
        """How different both answers to each input are; of classes, how sure the first is.

        Changed answers are listed by it, the largest first.
        """

    def gap(self, index: int, other: Any) -> str:
        """How different both answers to one input are, to be read; empty where words say it."""
        return ""

    def rows(self, index: int) -> list[int]:
        """The numbers of the rows of one input."""
        return [index]

    def confidence(self, index: int, other: Any) -> float | None:
        """How probable the answer is; None for kinds without probabilities."""
        return None

    def findings(self, other: Any) -> list[Finding]:
        """Further numbers about the two, such as the drift of their outputs."""
        return []


def drift(first: Array, second: Array, what: str = "logits") -> list[Finding]:
    """How far the second's outputs (rows, outputs) are from the first's.

    Relative to the root mean square distance of the first's outputs from each row's mean; of one
    output, which has no others beside it, from the mean of all rows.
    """
    centre = first.mean(1, keepdims=True) if first.shape[1] > 1 else first.mean()
    spread = max(float(np.sqrt(np.square(first - centre).mean())), 1e-12)
    relative = float(np.sqrt(np.square(second - first).mean())) / spread
    largest = float(np.abs(second - first).max())
    words = (
        f"Drift: B's {what} move by {100 * relative:.2f} % of the spread of A's (root mean "
        f"square), at most by {largest:.3g}."
    )
    return [
        Finding("logit_drift", relative, "share", words),
        Finding("largest_logit_shift", largest, "logits", ""),
    ]
