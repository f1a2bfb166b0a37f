"""Compare the answers of two models to the same texts: agreement and changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from sparing.answers import Answers
from sparing.measure.calibration import upper_bound
from sparing.measure.statistics import Interval, mcnemar_p_value
from sparing.tasks.texts import Texts

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Change:
    """A text, or a query, with another answer; ``row`` counts the rows of the source from 1.

    ``distance`` is how different the answers are, as their kind measures it, and ``gap`` says so in
    words. Only classes have probabilities.
    """

    row: int
    texts: tuple[str, ...]
    before: str
    after: str
    distance: float
    gap: str = ""
    before_probability: float | None = None
    after_probability: float | None = None


@dataclass(frozen=True)
class Agreement:
    """How far two models agree on distinct texts, or on queries.

    ``changed`` of ``texts`` answers differ. ``least`` is the exact lower bound of the share of
    equal answers: with 95 % confidence texts like these agree at least so often.
    """

    texts: int
    changed: int
    least: float

    @property
    def share(self) -> float:
        """The share of texts with the same answer."""
        return 1 - self.changed / self.texts


@dataclass(frozen=True)
class PairedDifference:
    """B's agreement with a reference less A's, on the same texts.

    ``only_a`` texts have the reference's answer from A alone, ``only_b`` from B alone. ``p_value``
    is McNemar's, exact and two-sided. ``interval`` is exact, with at least 95 % confidence: from
    the 97.5 % intervals of how often just one of them agrees, and of how often that one is B.
    """

    value: float
    interval: Interval
    p_value: float
    only_a: int
    only_b: int

    @property
    def closer(self) -> str:
        """Which of the two agrees more, A or B; undecided where the interval holds 0."""
        low, high = self.interval
        return "B" if low > 0 else "A" if high < 0 else "undecided"


def agreement_of(same: NDArray[np.bool_]) -> Agreement:
    """The agreement, with its exact one-sided 95 % bound (Clopper and Pearson, 1934)."""
    changed = int((~same).sum())
    least = 1 - upper_bound(changed, len(same), round(1 - CONFIDENCE, 12))
    return Agreement(len(same), changed, max(0.0, least))


def changes_of(texts: Texts, rows: Sequence[int], first: Answers, second: Answers) -> list[Change]:
    """The inputs with another answer, those that differ most first.

    Of classes these are the ones of which the first was surest. ``rows`` are the numbers of the
    texts in their source, from 1.
    """
    same, distances = first.same(second), first.distance(second)
    changes = []
    for index in np.flatnonzero(~same).tolist():
        row = first.rows(index)[0]
        given = texts.rows[row] if first.noun == "text" else texts.rows[row][:1]
        changes.append(
            Change(
                rows[row],
                given,
                first.words(index),
                second.words(index),
                float(distances[index]),
                first.gap(index, second),
                first.confidence(index, second),
                second.confidence(index, first),
            )
        )
    return sorted(changes, key=lambda change: (-change.distance, change.row))


def counts_of(changes: Sequence[Change]) -> list[tuple[str, str, int]]:
    """How often each answer became each other one, the most frequent first."""
    counts = Counter((change.before, change.after) for change in changes)
    return [(*pair, count) for pair, count in counts.most_common()]


def paired_difference(first: NDArray[np.bool_], second: NDArray[np.bool_]) -> PairedDifference:
    """B's share of agreement with a reference less A's, from which texts agree with it.

    ``first`` and ``second`` say for each text whether A's and B's answer is the reference's.
    """
    only_a, only_b = int((first & ~second).sum()), int((second & ~first).sum())
    discordant, count = only_a + only_b, len(first)
    rate = _exact(discordant, count)
    share = _exact(only_b, discordant) if discordant else (0.0, 1.0)
    ends = [one * (2 * other - 1) for one in rate for other in share]
    return PairedDifference(
        (only_b - only_a) / count,
        (min(ends), max(ends)),
        mcnemar_p_value(second.tolist(), first.tolist()),
        only_a,
        only_b,
    )


def _exact(successes: int, count: int) -> Interval:
    """Clopper and Pearson's interval, so that two of them hold together with 95 % confidence."""
    level = 1 - (1 - CONFIDENCE) / 2
    interval = stats.binomtest(successes, count).proportion_ci(level, method="exact")
    return float(interval.low), float(interval.high)
