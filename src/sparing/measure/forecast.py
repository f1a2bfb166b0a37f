"""The interval that more seeds would give, and how many of them decide a question.

A forecast takes mean and spread as they are now. Say that the true mean is as far from a target as
the estimate is. Then an interval of the forecast size excludes the target in about half of studies,
as the new mean is as often nearer as farther. With fewer than seven seeds it does in two thirds,
since steps of the number are large; with twice as many in four of five and more. So a forecast
compares open questions with each other. It does not promise an answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from sparing.core.errors import UsageError
from sparing.measure.pooling import Part, reach_of
from sparing.measure.statistics import Interval, student_quantile

FEWEST, MOST = 2, 1000
CANDIDATES = 4000  # of a variance that only its interval is known of


def unit_reach(count: int, confidence: float) -> float:
    """The half width of Student's interval of ``count`` values with a standard deviation of 1.

    Raises ``UsageError`` for fewer than two values.
    """
    if count < FEWEST:
        raise UsageError(f"an interval needs two values and more; got {count}")
    return student_quantile(count, confidence) / math.sqrt(count)


def resized(
    value: float,
    interval: Interval,
    count: int,
    more: int,
    confidence: float = 0.95,
    *,
    log: bool = False,
) -> Interval:
    """Student's interval of ``count`` values as ``more`` of the same mean and spread would give it.

    The lower and the upper side keep their proportion. With ``log`` the logarithm of a ratio is
    what was averaged. An interval with an end that has no logarithm stays as it is.
    """
    factor = unit_reach(more, confidence) / unit_reach(count, confidence)
    low, high = interval
    if not log:
        return value - factor * (value - low), value + factor * (high - value)
    if min(value, low) <= 0:
        return interval
    return value * (low / value) ** factor, value * (high / value) ** factor


def fewest(decides: Callable[[int], bool], most: int = MOST) -> int | None:
    """The least count from two on that decides; None where not even ``most`` does.

    Where a count decides, so must every larger one.
    """
    if not decides(most):
        return None
    low, high = FEWEST - 1, most  # the one does not decide, the other does
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if decides(middle) else (middle, high)
    return high


def reach_with(
    of_seeds: Sequence[Part], others: Sequence[Part], seeds: int, confidence: float
) -> float:
    """The half width of a mean over tasks, were there so many seeds of every task.

    ``of_seeds`` are the parts of the variance that further seeds lessen, ``others`` those that
    stay, such as of test examples.
    """
    return reach_of([*(part.at(seeds) for part in of_seeds), *others], confidence)


def rests_of(reach: float, of_seeds: Sequence[Part], confidence: float = 0.95) -> list[Part]:
    """What test examples must add to the parts of seeds for an interval of this half width.

    With few seeds two variances may give the same width: a second one adds to the error, and to
    the degrees of freedom besides. The larger one comes before the other. There is none where no
    variance gives this width.
    """
    most = (reach / student_quantile(10**6, confidence)) ** 2
    many = [Part(float(v), 10**6) for v in np.linspace(most, 0.0, CANDIDATES)]
    off = [reach_of([*of_seeds, part], confidence) - reach for part in many]
    return [
        part
        for part, before, after in zip(many[1:], off, off[1:], strict=False)
        if (before >= 0) != (after >= 0)
    ]
