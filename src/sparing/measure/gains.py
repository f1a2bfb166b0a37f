"""The largest possible gain from a part's share of the time: that of making the part free."""

from __future__ import annotations

from collections.abc import Callable

from sparing.measure.statistics import Ratio

LARGEST_SHARE = 0.999
"""Shares from here on count as this: timings are not more exact."""
_MOST_DECIMALS = 3


def largest_gain(share: Ratio) -> Ratio:
    """How many times faster the whole would be if a part with this share took no time.

    1 / (1 - share) of the value and of each end of the interval, so share and gain always agree
    (Amdahl's law). Shares are cut at 0.999.
    """
    interval = share.interval and (_gain(share.interval[0]), _gain(share.interval[1]))
    return Ratio(_gain(share.value), interval, share.count)


def _gain(share: float) -> float:
    return 1 / (1 - min(LARGEST_SHARE, share))


def share_decimals(share: float, shown: Callable[[float], str]) -> int:
    """The fewest decimals of a share in per cent that reproduce the shown gain.

    94 % gives 16.7 times, 93.5 % gives 15.4, and 93.46 % gives 15.3, as 0.934637 does. ``shown``
    formats a gain; at most three decimals help.
    """
    target = shown(_gain(share))
    for decimals in range(_MOST_DECIMALS):
        if shown(_gain(round(100 * share, decimals) / 100)) == target:
            return decimals
    return _MOST_DECIMALS
