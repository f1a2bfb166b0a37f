"""One difference from several tasks and seeds, where seeds share their task's test examples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sparing.core.errors import UsageError
from sparing.measure.statistics import Interval

Array = NDArray[np.float64]
RESAMPLES, AT_ONCE = 4_000, 200


@dataclass(frozen=True)
class PooledDifference:
    """A mean difference over tasks, with its two-sided interval and one-sided lower bound.

    ``examples`` counts the test examples of all tasks once, ``runs`` the tasks' seeds.
    """

    value: float
    interval: Interval
    bound: float
    examples: int
    runs: int


def pool_differences(
    tasks: Sequence[Array],
    *,
    confidence: float = 0.95,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> PooledDifference:
    """The mean of tasks' differences, weighted by their test examples.

    Each of ``tasks`` is an array (seeds, examples) of paired differences, such as 1 where only our
    answer is right, -1 where only the other's is, and else 0. Both the interval and the ``bound``
    have the given confidence. Examples and, where there are several, seeds are drawn anew, each
    for itself, so that neither three seeds count as three times the examples, nor many examples
    hide that trainings differ.

    Source: Owen, 2007, The pigeonhole bootstrap, Annals of Applied Statistics 1(2), for factors
    that cross. With one seed the interval speaks of other examples only; with few it is somewhat
    too narrow for what seeds contribute, by (seeds - 1) / seeds of that part of the variance.
    Raises ``UsageError`` for no tasks, and for arrays that are empty or not finite.
    """
    found = [np.asarray(task, dtype=np.float64) for task in tasks]
    if not found or any(gaps.ndim != 2 or not gaps.size for gaps in found):
        raise UsageError("pooling needs an array (seeds, examples) for each task, none empty")
    if not all(np.isfinite(gaps).all() for gaps in found):
        raise UsageError("a difference is not finite")
    if not 0 < confidence < 1:
        raise UsageError(f"confidence must be in (0, 1), got {confidence}")
    generator = np.random.default_rng(seed)
    total = sum(gaps.shape[1] for gaps in found)
    value = float(sum(gaps.mean() * gaps.shape[1] for gaps in found) / total)
    draws = np.zeros(resamples)
    for gaps in found:
        draws += _resampled(gaps, generator, resamples) * gaps.shape[1] / total
    tail = (1 - confidence) / 2
    low, high, bound = np.quantile(draws, [tail, 1 - tail, 1 - confidence])
    runs = sum(len(gaps) for gaps in found)
    return PooledDifference(value, (float(low), float(high)), float(bound), total, runs)


def _resampled(gaps: Array, generator: np.random.Generator, resamples: int) -> Array:
    """The mean of a task's differences in each resample of its seeds and its examples."""
    seeds, examples = gaps.shape
    means = []
    for start in range(0, resamples, AT_ONCE):
        rows = min(AT_ONCE, resamples - start)
        even = np.full(examples, 1 / examples)
        by_example = generator.multinomial(examples, even, size=rows) / examples
        by_seed = generator.multinomial(seeds, np.full(seeds, 1 / seeds), size=rows) / seeds
        means.append(((by_example @ gaps.T) * by_seed).sum(1))
    return np.concatenate(means)
