"""A vector for a text: an embedding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sparing.answers.base import Answers, Array, Finding, Flags
from sparing.core.errors import DataError, UsageError, quoted

NEIGHBOURS, AT_ONCE, SHOWN = 10, 512, 40
LEAST_COSINE = 0.99


@dataclass(frozen=True, eq=False)
class Vectors(Answers):
    """The vectors of texts (texts, dimensions). Two agree from a cosine of ``least_cosine`` on."""

    values: NDArray[np.float64]
    texts: tuple[str, ...]
    least_cosine: float = LEAST_COSINE

    def __len__(self) -> int:
        return len(self.values)

    @cached_property
    def directions(self) -> NDArray[np.float64]:
        """The vectors divided by their lengths; ``DataError`` for a vector of zeros."""
        lengths = np.linalg.norm(self.values, axis=1, keepdims=True)
        empty = np.flatnonzero(lengths[:, 0] == 0)
        if len(empty):
            row = int(empty[0])
            shown = f": {quoted(self.texts[row], 80)}" if self.texts else ""
            raise DataError(f"the vector of text {row + 1} has the length 0{shown}")
        directions: NDArray[np.float64] = self.values / lengths
        return directions

    def cosines(self, other: Vectors) -> NDArray[np.float64]:
        """The cosine of both vectors of each text; ``UsageError`` for other dimensions."""
        if self.values.shape[1] != other.values.shape[1]:
            raise UsageError(
                f"vectors of {self.values.shape[1]} and of {other.values.shape[1]} dimensions have "
                "no cosine: compare models of the same dimensions"
            )
        cosines: NDArray[np.float64] = (self.directions * other.directions).sum(1)
        return np.clip(cosines, -1, 1)

    def same(self, other: Vectors) -> Flags:
        """Whether the cosine of each text's vectors is large enough."""
        near: Flags = self.cosines(other) >= self.least_cosine
        return near

    @cached_property
    def neighbours(self) -> NDArray[np.int64]:
        """The ten nearest other texts of each text, the nearest first (texts, ten)."""
        count = min(NEIGHBOURS, len(self) - 1)
        nearest = []
        for start in range(0, len(self), AT_ONCE):
            cosines = self.directions[start : start + AT_ONCE] @ self.directions.T
            rows = np.arange(len(cosines))
            cosines[rows, start + rows] = -np.inf
            best = np.argpartition(-cosines, count - 1, axis=1)[:, :count]
            order = np.argsort(-np.take_along_axis(cosines, best, 1), axis=1, kind="stable")
            nearest.append(np.take_along_axis(best, order, 1))
        return np.concatenate(nearest)

    def words(self, index: int) -> str:
        """The nearest other text."""
        return f"nearest: {quoted(self.texts[int(self.neighbours[index, 0])], SHOWN)}"

    def distance(self, other: Vectors) -> Array:
        """1 less the cosine."""
        return 1 - self.cosines(other)

    def gap(self, index: int, other: Vectors) -> str:
        """The cosine."""
        return f"cosine {self.cosines(other)[index]:.3f}"

    def findings(self, other: Vectors) -> list[Finding]:
        """The cosines, and how many of the ten nearest texts are the same."""
        cosines = self.cosines(other)
        mean, low = float(cosines.mean()), float(np.percentile(cosines, 1))
        pairs = zip(self.neighbours, other.neighbours, strict=True)
        shared = float(np.mean([len(np.intersect1d(one, two)) / len(one) for one, two in pairs]))
        count = self.neighbours.shape[1]
        cosine_words = (
            f"The cosine of both vectors is {mean:.4f} on average, and {low:.4f} at the 1st "
            "percentile."
        )
        shared_words = (
            f"Both have {100 * shared:.1f} % of a text's {count} nearest texts in common."
        )
        return [
            Finding("cosine", mean, "cosine", cosine_words),
            Finding("cosine_p1", low, "cosine", ""),
            Finding("shared_neighbours", shared, "share", shared_words),
        ]


def texts_of(rows: Sequence[tuple[str, ...]], source: str) -> tuple[str, ...]:
    """The texts to embed; ``DataError`` for pairs, which have no vector."""
    if any(len(row) != 1 for row in rows):
        raise DataError(f"{source}: a vector is of one text; give a column with --columns")
    return tuple(row[0] for row in rows)
