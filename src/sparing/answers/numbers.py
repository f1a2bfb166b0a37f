"""A number for a text, or for a document of a query: similarity, a score, relevance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from sparing.answers.base import Answers, Array, Finding, Flags, drift
from sparing.core.errors import DataError
from sparing.tasks.shared.rankings import query_numbers

SHOWN = 5


@dataclass(frozen=True, eq=False)
class Numbers(Answers):
    """One number for each text. Two agree if they differ by at most ``most_difference``."""

    values: NDArray[np.float64]
    most_difference: float

    def __len__(self) -> int:
        return len(self.values)

    def same(self, other: Numbers) -> Flags:
        """Whether the numbers of each text are near enough."""
        near: Flags = self.distance(other) <= self.most_difference
        return near

    def words(self, index: int) -> str:
        """The number of one text."""
        return f"{self.values[index]:.4g}"

    def distance(self, other: Numbers) -> Array:
        """The absolute difference."""
        return np.abs(self.values - other.values)

    def gap(self, index: int, other: Numbers) -> str:
        """The difference."""
        return f"differ by {self.distance(other)[index]:.3g}"

    def findings(self, other: Numbers) -> list[Finding]:
        """The differences and the rank correlation."""
        return [*_differences(self.values, other.values), *_correlation(self.values, other.values)]


@dataclass(frozen=True, eq=False)
class Rankings(Answers):
    """The relevance of documents (rows), by query. ``queries`` are the rows of each query.

    Two rankings agree unless two documents change places: one is the higher in the first, the
    other in the second. Documents that one of them scores equally may have either order.
    """

    noun: ClassVar[str] = "query"
    answer: ClassVar[str] = "the same order of documents"

    values: NDArray[np.float64]
    queries: tuple[tuple[int, ...], ...]

    def __len__(self) -> int:
        return len(self.queries)

    def rows(self, index: int) -> list[int]:
        """The rows of one query."""
        return list(self.queries[index])

    @cached_property
    def orders(self) -> list[list[int]]:
        """The rows of each query, the most relevant first."""
        return [sorted(rows, key=lambda row: (-self.values[row], row)) for rows in self.queries]

    def same(self, other: Rankings) -> Flags:
        """Whether no two documents of a query change places."""
        unmoved: Flags = self.distance(other) == 0
        return unmoved

    def words(self, index: int) -> str:
        """The first documents of one query by their place in the file, the most relevant first."""
        rows = self.orders[index]
        more = ", ..." if len(rows) > SHOWN else ""
        first = min(self.queries[index])
        return ", ".join(f"+{row - first}" for row in rows[:SHOWN]) + more

    def distance(self, other: Rankings) -> Array:
        """The share of pairs of documents of a query that change places."""
        return np.array(
            [_swapped(self.values[list(q)], other.values[list(q)]) for q in self.queries]
        )

    def gap(self, index: int, other: Rankings) -> str:
        """The share of pairs of documents that change places."""
        return f"{100 * self.distance(other)[index]:.3g} % of pairs swapped"

    def findings(self, other: Rankings) -> list[Finding]:
        """How often the first document is the same, and the differences."""
        pairs = zip(self.orders, other.orders, strict=True)
        first = float(np.mean([one[0] == two[0] for one, two in pairs]))
        words = f"The most relevant document is the same for {100 * first:.2f} % of the queries."
        return [
            Finding("same_first_document", first, "share", words),
            *_differences(self.values, other.values),
            *_correlation(self.values, other.values),
        ]


def queries_of(rows: Sequence[tuple[str, ...]]) -> tuple[tuple[int, ...], ...]:
    """The rows of each query with several documents: pairs with the same first text.

    Raises ``DataError`` where no query has two documents.
    """
    groups: dict[int, list[int]] = {}
    for number, query in enumerate(query_numbers(rows)):
        groups.setdefault(query, []).append(number)
    queries = tuple(tuple(group) for group in groups.values() if len(group) > 1)
    if not queries or any(len(row) != 2 for row in rows):
        raise DataError(
            "no query has two documents to put in order: give pairs of which several share their "
            "first text, or say with --most-difference how much two numbers may differ"
        )
    return queries


def _swapped(first: Array, second: Array) -> float:
    """The share of pairs that are ordered one way in the first and the other in the second."""
    one, two = (np.sign(x[:, None] - x[None, :]) for x in (first, second))
    count = len(first)
    return float(((one * two) < 0).sum()) / (count * (count - 1))


def _differences(first: Array, second: Array) -> list[Finding]:
    gaps = np.abs(first - second)
    words = f"The numbers differ by {gaps.mean():.3g} on average, at most by {gaps.max():.3g}."
    return [
        Finding("mean_difference", float(gaps.mean()), "", words),
        Finding("largest_difference", float(gaps.max()), "", ""),
        *drift(first[:, None], second[:, None], "numbers"),
    ]


def _correlation(first: Array, second: Array) -> list[Finding]:
    if len(first) < 2 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return []
    value = float(stats.spearmanr(first, second).statistic)
    return [Finding("spearman", value, "", f"Their rank correlation (Spearman) is {value:.4f}.")]
