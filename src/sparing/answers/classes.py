"""One class, or several labels, of a text."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sparing.answers.base import Answers, Array, Finding, Flags, drift


@dataclass(frozen=True, eq=False)
class Classes(Answers):
    """The logits of one classifier (texts, classes), in the order of ``labels``.

    Where ``several``, the answer to a text is the set of labels with a probability of at least
    ``threshold``; else it is the class of the largest logit.
    """

    logits: NDArray[np.float64]
    labels: tuple[str, ...]
    several: bool
    threshold: float = 0.5

    def __len__(self) -> int:
        return len(self.logits)

    @cached_property
    def probabilities(self) -> NDArray[np.float64]:
        """Each label's probability (texts, classes)."""
        if self.several:
            return 1 / (1 + np.exp(-np.clip(self.logits, -700, 700)))
        powers = np.exp(self.logits - self.logits.max(1, keepdims=True))
        shares: NDArray[np.float64] = powers / powers.sum(1, keepdims=True)
        return shares

    @cached_property
    def chosen(self) -> Flags:
        """Whether each label belongs to the answer (texts, classes)."""
        if self.several:
            high: Flags = self.probabilities >= self.threshold
            return high
        columns = np.arange(self.logits.shape[1])
        top: Flags = columns == self.logits.argmax(1)[:, None]
        return top

    def same(self, other: Classes) -> Flags:
        """Whether each text has the same class, or the same set of labels."""
        same: Flags = (self.chosen == other.chosen).all(1)
        return same

    def words(self, index: int) -> str:
        """The answer to one text: its labels, or none."""
        names = [self.labels[column] for column in np.flatnonzero(self.chosen[index])]
        return " + ".join(names) or "(none)"

    def confidence(self, index: int, other: Classes) -> float:
        """The probability of the surest decision in which the two differ."""
        shares = self.probabilities[index]
        if not self.several:
            return float(shares.max())
        decided = np.where(self.chosen[index], shares, 1 - shares)
        differ = self.chosen[index] != other.chosen[index]
        return float(decided[differ].max(initial=0.0))

    def distance(self, other: Classes) -> Array:
        """How sure the first is where they differ."""
        return np.array([self.confidence(index, other) for index in range(len(self))])

    def findings(self, other: Classes) -> list[Finding]:
        """The drift of the logits; of several labels the share of texts for each label too."""
        moved = drift(self.logits, other.logits)
        if not self.several:
            return moved
        shares = (self.chosen == other.chosen).mean(0)
        worst = int(shares.argmin())
        least = float(shares[worst])
        words = f"The label that agrees least is {self.labels[worst]}: {100 * least:.2f} %."
        return [*moved, Finding("least_label_agreement", least, "share", words)]
