"""Conclusions from a few paired measurements: ratios, intervals, tests, verdicts.

Everything is paired: the i-th value of one variant and the i-th of the other share a seed, a round
or a test example. Random resampling uses private generators with a stored seed, so the same numbers
always give the same interval.

Two choices follow from the small number of seeds. The percentile bootstrap is too narrow for few
values: at 5 values its "95 %" holds 84 % of the time. So below a stated count Student's interval is
used. From there on the percentiles are widened as Hesterberg proposes ("What teachers should know
about the bootstrap", 2014, arXiv 1411.5279: the expanded percentile interval). From one pair there
is no interval.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from sparing.core.errors import UsageError
from sparing.core.record import Label, Obtained, Record

Interval = tuple[float, float]
Verdict = Literal["better", "worse", "equivalent", "undecided"]
Array = NDArray[np.float64]
Values = Sequence[float] | Sequence[int] | Array

RESAMPLES = 10_000
FEWEST_FOR_MEAN_BOOTSTRAP = 10
FEWEST_FOR_MEDIAN_BOOTSTRAP = 6
FEWEST_WITHOUT_SPREAD = 5
EXACT_SIGN_FLIPS_UP_TO = 20


@dataclass(frozen=True)
class Ratio:
    """A paired ratio, its interval (``None`` for one pair) and the number of pairs."""

    value: float
    interval: Interval | None
    count: int


@dataclass(frozen=True)
class Difference:
    """A paired difference, its interval (``None`` for one pair) and the number of pairs."""

    value: float
    interval: Interval | None
    count: int


def as_record(
    name: str,
    estimate: Ratio | Difference,
    unit: str,
    labels: dict[str, Label],
    obtained: Obtained = "measured",
) -> Record:
    """An estimate as a record, with its interval and the number of pairs."""
    return Record(name, estimate.value, unit, obtained, labels, estimate.interval, estimate.count)


def geometric_mean_ratio(
    candidate: Values, baseline: Values, *, confidence: float = 0.95, seed: int = 0
) -> Ratio:
    """exp(mean of log(candidate / baseline)), for quantities with one value a pair: energy, time.

    Student's interval on the logs below ten pairs, the widened bootstrap over pairs from ten on.
    Raises ``UsageError`` for unequal lengths, no pairs, or values that are not positive.
    """
    logs = _log_ratios(candidate, baseline)
    interval = _mean_interval(logs, confidence, seed)
    return Ratio(math.exp(logs.mean()), _exp(interval), len(logs))


def median_ratio(
    candidate: Values, baseline: Values, *, confidence: float = 0.95, seed: int = 0
) -> Ratio:
    """The median of the pairs' ratios, for quantities with outliers: latency over rounds.

    Medians are taken of logs, so that swapping the variants gives exactly the inverse. Student's
    interval on the logs below six pairs, the widened bootstrap of the median from six on.
    Raises ``UsageError`` as ``geometric_mean_ratio`` does.
    """
    logs = _log_ratios(candidate, baseline)
    if len(logs) < FEWEST_FOR_MEDIAN_BOOTSTRAP:
        interval = _student_interval(logs, confidence)
    else:
        interval = _bootstrap_interval(
            np.sort(logs), _resampled_middles(len(logs), seed), confidence
        )
    return Ratio(math.exp(np.median(logs)), _exp(interval), len(logs))


def mean_difference(
    candidate: Values,
    baseline: Values,
    *,
    confidence: float = 0.95,
    resolution: float = 0.0,
    seed: int = 0,
) -> Difference:
    """The mean of candidate - baseline over pairs, for accuracies and losses.

    ``resolution`` is the smallest step of the quantity (1 / test examples for an accuracy). Two
    seeds may agree by coincidence of rounding, so the spread is never below that of rounding both
    values. The interval holds for other seeds on the same test examples, not for other examples.
    For a family of comparisons pass a confidence of 1 - 0.05 / comparisons. Raises ``UsageError``
    for unequal lengths or no pairs.
    """
    differences = _paired(candidate, baseline)
    interval = _mean_interval(differences, confidence, seed, resolution / math.sqrt(6))
    return Difference(float(differences.mean()), interval, len(differences))


def unseen(count: int, confidence: float) -> float:
    """The largest share of inputs that may differ where none of ``count`` did.

    Resampling gives an interval without width there. One-sided, at half of the confidence's
    remainder: (1 - share) ** count has that probability.
    """
    return float(1 - ((1 - confidence) / 2) ** (1 / count))


def with_unseen(interval: Interval, count: int, confidence: float = 0.95) -> Interval:
    """A resampled interval of a share; one without width is widened by ``unseen``."""
    low, high = interval
    reach = unseen(count, confidence) if low == high else 0.0
    return low - reach, high + reach


def verdict(difference: Difference, margin: float, *, higher_is_better: bool = True) -> Verdict:
    """The verdict of an interval: inside the margin, on one side of zero, or neither.

    ``equivalent`` when the whole interval is strictly within +-margin, even if it excludes zero:
    the margin was declared too small to matter beforehand. Otherwise ``better`` or ``worse`` when
    it excludes zero, else ``undecided``. One pair is always undecided. So is an interval without
    width from fewer than five pairs, which shows that the measure is coarse, not that it is
    certain.
    """
    if margin < 0 or math.isnan(margin):
        raise UsageError(f"the margin must not be negative; got {margin}")
    if difference.interval is None or difference.count < 2:
        return "undecided"
    low, high = difference.interval
    if high - low <= 1e-9 * max(abs(low), abs(high)) and difference.count < FEWEST_WITHOUT_SPREAD:
        return "undecided"
    if -margin < low and high < margin:
        return "equivalent"
    if low <= 0 <= high:
        return "undecided"
    return "better" if (low > 0) == higher_is_better else "worse"


def sign_flip_p_value(
    candidate: Values, baseline: Values, *, resamples: int = RESAMPLES, seed: int = 0
) -> float:
    """Two-sided p-value of the paired permutation test: were the variants' labels exchangeable?

    Under the null hypothesis the other sign of each difference is equally probable. All 2^n sign
    patterns are counted up to 20 pairs, a sample of them beyond. The smallest value that n pairs
    can give is 2 / 2^n: five seeds can never reach 0.05, six can. For a ratio pass logarithms.
    """
    differences = _paired(candidate, baseline)
    observed = abs(differences.sum())
    if len(differences) <= EXACT_SIGN_FLIPS_UP_TO:
        sums = _signed_sums(differences)
        return float(np.mean(np.abs(sums) >= observed - _slack(differences)))
    generator = np.random.default_rng(seed)
    signs = generator.integers(0, 2, (resamples, len(differences)), dtype=np.int8) * 2 - 1
    extreme = np.count_nonzero(np.abs(signs @ differences) >= observed - _slack(differences))
    return float((1 + extreme) / (1 + resamples))


def holm(p_values: Values) -> list[float]:
    """Holm's adjusted p-values, in the order given: reject those at or below the level.

    Keeps the probability of any false rejection in the family at the level, for any dependence.
    Source: Holm, 1979, "A simple sequentially rejective multiple test procedure".
    """
    raw = np.asarray(p_values, dtype=np.float64)
    if raw.ndim != 1 or not ((raw >= 0) & (raw <= 1)).all():
        raise UsageError(f"p-values must be between 0 and 1; got {list(p_values)}")
    order = np.argsort(raw, kind="stable")
    scaled = raw[order] * np.arange(len(raw), 0, -1)
    adjusted = np.empty_like(raw)
    adjusted[order] = np.minimum(np.maximum.accumulate(scaled), 1.0)
    return [float(value) for value in adjusted]


def equivalence(candidate: Values, baseline: Values, margin: float) -> float:
    """P-value of two one-sided paired t tests: small when the difference is within +-margin.

    One pair gives 1: it shows nothing. Source: Schuirmann, 1987.
    """
    return max(
        non_inferiority(candidate, baseline, margin),
        non_inferiority(baseline, candidate, margin),
    )


def non_inferiority(candidate: Values, baseline: Values, margin: float) -> float:
    """P-value of one one-sided paired t test: small when candidate > baseline - margin.

    Higher is better. One pair gives 1. Differences without any spread give 2^-n when all are above
    -margin: the result of a sign test, since the t test is undefined.
    """
    if not margin > 0:
        raise UsageError(f"the margin must be positive; got {margin}")
    above = _paired(candidate, baseline) + margin
    count = len(above)
    if count < 2:
        return 1.0
    error = above.std(ddof=1) / math.sqrt(count)
    # cancellation leaves rounding errors of the size of the operands
    slack = max(_slack(np.asarray(values, dtype=np.float64)) for values in (candidate, baseline))
    if error <= slack:
        return 0.5**count if above.mean() > slack else 1.0
    return float(stats.t.sf(above.mean() / error, count - 1))


def mcnemar_p_value(candidate_correct: Sequence[bool], baseline_correct: Sequence[bool]) -> float:
    """Exact two-sided McNemar test: do two models err on different examples equally often?

    Only examples that one gets right and the other wrong count; without any the value is 1.
    """
    if len(candidate_correct) != len(baseline_correct) or not len(candidate_correct):
        raise UsageError(
            "McNemar needs both models' answers to the same examples; got "
            f"{len(candidate_correct)} and {len(baseline_correct)}"
        )
    candidate_right = np.asarray(candidate_correct, dtype=bool)
    baseline_right = np.asarray(baseline_correct, dtype=bool)
    only_candidate = int(np.count_nonzero(candidate_right & ~baseline_right))
    discordant = int(np.count_nonzero(candidate_right != baseline_right))
    return float(stats.binomtest(only_candidate, discordant).pvalue) if discordant else 1.0


def _paired(candidate: Values, baseline: Values) -> Array:
    first, second = (np.asarray(values, dtype=np.float64) for values in (candidate, baseline))
    if first.shape != second.shape or first.ndim != 1 or not first.size:
        raise UsageError(
            f"pairs need two lists of one length; got {first.shape} and {second.shape}"
        )
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        raise UsageError("pairs hold a value that is not finite")
    return first - second


def _log_ratios(candidate: Values, baseline: Values) -> Array:
    first, second = (np.asarray(values, dtype=np.float64) for values in (candidate, baseline))
    if (first <= 0).any() or (second <= 0).any():
        raise UsageError("a ratio needs values above zero on both sides")
    return _paired(np.log(first).tolist(), np.log(second).tolist())


def _slack(values: Array) -> float:
    """The rounding error of a sum of these values: equal sums must count as equal."""
    return float(1e-12 * np.abs(values).sum())


def _signed_sums(values: Array) -> Array:
    """The sums of all sign patterns, the first sign fixed: the other half mirrors them."""
    sums = values[:1]
    for value in values[1:]:
        sums = np.concatenate((sums + value, sums - value))
    return sums


def _exp(interval: Interval | None) -> Interval | None:
    return None if interval is None else (math.exp(interval[0]), math.exp(interval[1]))


def _mean_interval(
    values: Array, confidence: float, seed: int, least_spread: float = 0.0
) -> Interval | None:
    if len(values) < FEWEST_FOR_MEAN_BOOTSTRAP or values.std(ddof=1) < least_spread:
        return _student_interval(values, confidence, least_spread)
    return _bootstrap_interval(values, _resamples(len(values), seed), confidence)


def student_quantile(count: int, confidence: float) -> float:
    """How many standard errors of so many values Student's interval reaches to each side.

    Raises ``UsageError`` for a confidence that is not between 0 and 1.
    """
    if not 0 < confidence < 1:
        raise UsageError(f"confidence must be between 0 and 1; got {confidence}")
    return float(stats.t.ppf((1 + confidence) / 2, count - 1))


def _student_interval(
    values: Array, confidence: float, least_spread: float = 0.0
) -> Interval | None:
    count = len(values)
    if count < 2:
        return None
    spread = max(float(values.std(ddof=1)), least_spread)
    reach = student_quantile(count, confidence) * spread / math.sqrt(count)
    centre = float(values.mean())
    return centre - reach, centre + reach


def _bootstrap_interval(values: Array, members: NDArray[np.intp], confidence: float) -> Interval:
    """Percentiles of the resampled statistic, widened to Student's quantile.

    ``members`` are the values that each resample averages for its statistic.
    """
    count = len(values)
    widened = student_quantile(count, confidence) * math.sqrt(count / (count - 1))
    tail = float(stats.norm.cdf(-widened))
    low, high = np.quantile(values[members].mean(axis=1), (tail, 1 - tail))
    return float(low), float(high)


@lru_cache(maxsize=16)
def _resamples(count: int, seed: int) -> NDArray[np.intp]:
    """The indices, of ``count`` values, that each resample holds."""
    draws = np.random.default_rng(seed).integers(0, count, (RESAMPLES, count), dtype=np.intp)
    draws.setflags(write=False)
    return draws


@lru_cache(maxsize=16)
def _resampled_middles(count: int, seed: int) -> NDArray[np.intp]:
    """The indices, of ``count`` sorted values, in the middle of each resample: one or two."""
    middles = np.sort(_resamples(count, seed), axis=1)[:, (count - 1) // 2 : count // 2 + 1]
    middles.setflags(write=False)
    return middles
