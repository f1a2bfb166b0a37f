"""Two variants that ran in pairs, compared as a whole: ratio, interval, tests, effect; and the
target.

The primary test is fixed here, before any data: the sign flip of log ratios. The classical way is
reported beside it, as many papers plan it: Shapiro and Wilk's test chooses between Student's and
Wilcoxon's. A test chosen by a test on the same data does not hold its level exactly.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import stats

from sparing.core.errors import UsageError
from sparing.measure._component import JOULES_PER_KWH
from sparing.measure.statistics import (
    Array,
    Ratio,
    Values,
    geometric_mean_ratio,
    sign_flip_p_value,
)

FEWEST_FOR_A_CLAIM = 10
NORMAL_LEVEL = 0.05


@dataclass(frozen=True)
class PairedComparison:
    """A comparison of two variants' times or energies from pairs.

    ``ratio`` is the geometric mean of candidate over baseline, with its 95 % interval;
    ``sign_flip_p`` is the primary test. ``normal_p`` is Shapiro and Wilk's of the log ratios (None
    below three pairs, or where all are equal). ``follow_up`` is the test that it leads to,
    ``follow_up_p`` its p-value. ``effect`` is the mean log ratio in units of its deviation (Cohen's
    d_z), ``rank_effect`` the matched-pairs rank-biserial correlation, from -1 to 1.
    ``typical_ratio`` is the Hodges-Lehmann estimate, which is robust to one odd pair.
    """

    ratio: Ratio
    sign_flip_p: float
    normal_p: float | None
    follow_up: Literal["t", "wilcoxon"]
    follow_up_p: float | None
    effect: float | None
    rank_effect: float
    typical_ratio: float

    @property
    def enough(self) -> bool:
        """Whether there are enough pairs for a claim."""
        return self.ratio.count >= FEWEST_FOR_A_CLAIM


def compare_pairs(candidate: Values, baseline: Values, *, seed: int = 0) -> PairedComparison:
    """Compare two variants; their i-th values share a seed and an order of data.

    Raises ``UsageError`` for unequal lengths, no pairs, or values that are not positive.
    """
    ratio = geometric_mean_ratio(candidate, baseline, seed=seed)
    logs = np.log(np.asarray(candidate, np.float64)) - np.log(np.asarray(baseline, np.float64))
    zeros = np.zeros_like(logs)
    normal = _normal_p(logs)
    follow_up: Literal["t", "wilcoxon"] = "t"
    if normal is not None and normal < NORMAL_LEVEL:
        follow_up = "wilcoxon"
    return PairedComparison(
        ratio=ratio,
        sign_flip_p=sign_flip_p_value(logs, zeros, seed=seed),
        normal_p=normal,
        follow_up=follow_up,
        follow_up_p=_follow_up(logs, follow_up),
        effect=_effect(logs),
        rank_effect=_rank_effect(logs),
        typical_ratio=math.exp(_hodges_lehmann(logs)),
    )


def _normal_p(logs: Array) -> float | None:
    if len(logs) < 3 or np.ptp(logs) == 0:
        return None
    return float(stats.shapiro(logs).pvalue)


def _follow_up(logs: Array, name: str) -> float | None:
    """The follow-up test; None for one pair, and where all pairs are equal (no spread)."""
    if len(logs) < 2 or np.ptp(logs) == 0:
        return None
    if name == "t":
        return float(stats.ttest_1samp(logs, 0.0).pvalue)
    return float(stats.wilcoxon(logs).pvalue)


def _effect(logs: Array) -> float | None:
    if len(logs) < 2 or np.ptp(logs) == 0:
        return None
    return float(logs.mean() / logs.std(ddof=1))


def _rank_effect(logs: Array) -> float:
    """(ranks of pairs that rise less ranks of those that fall) / all ranks; ties rank alike."""
    nonzero = logs[logs != 0]
    if not len(nonzero):
        return 0.0
    ranks = stats.rankdata(np.abs(nonzero))
    return float((ranks * np.sign(nonzero)).sum() / ranks.sum())


def _hodges_lehmann(logs: Array) -> float:
    """The median of the means of all pairs of values, including each value with itself."""
    rows, columns = np.triu_indices(len(logs))
    return float(np.median((logs[rows] + logs[columns]) / 2))


def energy_to_target(
    scores: Sequence[float], energies_j: Sequence[float], target: float
) -> float | None:
    """A training's energy until a validation first reached a target, in joules.

    ``energies_j`` are the totals up to each validation. Between a validation below and one at or
    above the target nothing is interpolated: the later total counts. None where the target is never
    reached: such a training is censored and has no number. Raises ``UsageError`` for unequal
    lengths and totals that fall.
    """
    if len(scores) != len(energies_j):
        raise UsageError(f"{len(scores)} scores but {len(energies_j)} energies")
    if any(later < before for before, later in itertools.pairwise(energies_j)):
        raise UsageError("energies are totals up to each validation: they cannot fall")
    reached = (e for score, e in zip(scores, energies_j, strict=True) if score >= target)
    return next(reached, None)


def carbon_g(energy_j: float, intensity_g_per_kwh: float) -> float:
    """Grams of CO2 equivalent at a stated intensity of the grid; nothing is looked up.

    Raises ``UsageError`` for an intensity or an energy below 0.
    """
    if energy_j < 0 or intensity_g_per_kwh < 0:
        raise UsageError("energy and intensity must not be negative")
    return energy_j / JOULES_PER_KWH * intensity_g_per_kwh
