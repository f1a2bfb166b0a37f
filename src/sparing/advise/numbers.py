"""Ratios, shares and times in words, with their direction."""

from __future__ import annotations

from sparing.measure.statistics import Ratio

TIMES = "\N{MULTIPLICATION SIGN}"
DASH = "\N{EN DASH}"


def gain_bounds(ratio: Ratio) -> tuple[float, float]:
    """The interval of the speed-up, from that of a ratio of times."""
    low, high = ratio.interval or (ratio.value, ratio.value)
    return 1 / high, 1 / low


def speed(ratio: Ratio | None) -> str:
    """A ratio of times as a factor with its direction and interval: ``1.3x faster (1.2-1.4)``.

    An interval that holds 1 claims no direction. It is written in the direction of the value, so
    one end is below 1.
    """
    if ratio is None:
        return "not measured"
    faster = ratio.value < 1
    value = 1 / ratio.value if faster else ratio.value
    text = f"{factor(value)} {'faster' if faster else 'slower'}"
    if ratio.interval is None:
        return text
    low, high = gain_bounds(ratio) if faster else ratio.interval
    if low <= 1 <= high:
        text = "about as fast"
    return f"{text} ({digits(low)}{DASH}{digits(high)})"


def ratio_words(ratio: Ratio | None, busy: str) -> str:
    """A ratio of times as ``speed`` writes it, or as a bare number if the machine was busy.

    ``busy`` is what kept the machine busy, empty if it was quiet.
    """
    if ratio is None or not busy:
        return speed(ratio)
    interval = ratio.interval
    spread = f" ({digits(interval[0])}{DASH}{digits(interval[1])})" if interval else ""
    return f"{factor(ratio.value)} the time{spread}, not decided"


def factor(value: float) -> str:
    """A factor with a times sign."""
    return f"{digits(value)}{TIMES}"


def digits(value: float) -> str:
    """A factor's digits: more the nearer to 1 it is."""
    if 0.995 <= value < 1.005:
        return f"{value:.3f}"
    return f"{value:.2f}" if value < 9.95 else f"{value:,.0f}"


def percent(share: float) -> str:
    """A share of 1 in per cent."""
    return f"{100 * share:.0f} %" if share == 0 or share >= 0.0995 else f"{100 * share:.1f} %"


def percents(share: Ratio) -> str:
    """The interval of a share in per cent; empty without one."""
    if share.interval is None:
        return ""
    low, high = share.interval
    return f"{100 * low:.1f}{DASH}{100 * high:.1f} %"


def milliseconds(value: float) -> str:
    """Milliseconds with three digits."""
    decimals = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:,.{decimals}f} ms"
