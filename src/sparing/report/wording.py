"""Numbers in words: with sensible digits, units and clear directions."""

from __future__ import annotations

import math

from sparing.measure.gains import share_decimals

Number = int | float

MINUS = "\N{MINUS SIGN}"
DASH = "\N{EN DASH}"
TIMES = "\N{MULTIPLICATION SIGN}"

_BYTES = ((1024**3, "GiB"), (1024**2, "MiB"), (1024, "KiB"), (1, "B"))
_FLOPS = ((1e12, "TFLOP"), (1e9, "GFLOP"), (1e6, "MFLOP"), (1e3, "kFLOP"), (1, "FLOP"))
_JOULES = ((1e6, "MJ"), (1e3, "kJ"), (1, "J"), (1e-3, "mJ"), (1e-6, "\N{MICRO SIGN}J"))
_SECONDS = ((3600, "h"), (60, "min"), (1, "s"), (1e-3, "ms"), (1e-6, "\N{MICRO SIGN}s"))
_ENOUGH = 1.95
SAME = "the same"
_SMALL, _LARGE = 0.01, 100


def number(value: Number, digits: int = 3) -> str:
    """A number with so many significant digits and commas in its thousands; no exponent."""
    if value == 0:
        return "0"
    magnitude = math.floor(math.log10(abs(value)))
    decimals = max(0, digits - 1 - magnitude)
    if decimals > 9:
        return f"{value:.{digits - 1}e}"
    return f"{value:,.{decimals}f}".replace("-", MINUS)


def trimmed(value: Number) -> str:
    """A number with up to three significant digits and no trailing zeros."""
    text = number(value)
    return text.rstrip("0").rstrip(".") if "." in text and "e" not in text else text


def signed(value: Number, decimals: int = 1) -> str:
    """A number with its sign, a real minus, and no sign on what rounds to zero."""
    text = f"{abs(value):.{decimals}f}"
    if float(text) == 0:
        return text
    return ("+" if value > 0 else MINUS) + text


def _scaled(value: Number, units: tuple[tuple[Number, str], ...]) -> str:
    size, unit = next(((s, u) for s, u in units if abs(value) >= s), units[-1])
    whole = size == 1 and unit in ("B", "FLOP")
    return f"{value:,.0f} {unit}" if whole else f"{number(value / size)} {unit}"


def size_of_bytes(value: Number) -> str:
    """Bytes in binary units."""
    return _scaled(value, _BYTES)


def flops(value: Number) -> str:
    """Floating point operations in decimal units."""
    return _scaled(value, _FLOPS)


def energy(value_j: Number) -> str:
    """Joules in decimal units."""
    return _scaled(value_j, _JOULES)


def duration(value_s: Number) -> str:
    """Seconds, in a unit that reads well: 90 s, but 2.5 min."""
    units = tuple(pair for pair in _SECONDS if pair[0] <= 1 or value_s >= _ENOUGH * pair[0])
    return _scaled(value_s, units)


def latency(value_ms: Number) -> str:
    """Milliseconds, in seconds from ten thousand on."""
    return duration(value_ms / 1e3) if value_ms >= 1e4 else f"{number(value_ms)} ms"


def length(count: Number) -> str:
    """A number of tokens."""
    whole = round(count)
    return f"{whole:,} token" + ("" if whole == 1 else "s")


def count_of(count: int, singular: str, plural: str = "") -> str:
    """A count with its noun: 1 seed, 2 seeds."""
    return f"{count:,} {singular if count == 1 else plural or singular + 's'}"


def plain(value: Number, unit: str) -> str:
    """A stated number without trailing zeros, and its unit: 1 point, 0.5 points."""
    text = f"{value:.6g}"
    return f"{text} {unit}" + ("" if text == "1" else "s")


def factor(value: Number) -> str:
    """A ratio of at least 1, with more digits the nearer to 1 it is."""
    decimals = 0 if value >= 99.5 else 1 if value >= 1.995 else 2 if value >= 1.0095 else 3
    return f"{value:,.{decimals}f}{TIMES}"


def ratio(value: Number, below: str, above: str) -> str:
    """A ratio to the baseline as a factor with its direction, such as ``2.3x faster``.

    ``below`` is the word for ratios under 1, ``above`` for those over 1; the factor is never
    smaller than 1, so a number cannot be read the wrong way round.
    """
    if value <= 0:
        return f"no {below} than 0"
    text = factor(value if value >= 1 else 1 / value)
    if text == factor(1.0):
        return SAME
    return f"{text} {below if value < 1 else above}"


def ratio_interval(interval: tuple[float, float]) -> str:
    """The interval of a ratio, turned the way ``ratio`` turns the value.

    An interval around 1 stays a plain ratio: both of its ends have another direction.
    """
    low, high = interval
    if low <= 0 or low < 1 < high:
        if low < _SMALL or high > _LARGE:
            return f"{_bounded(low)} to {_bounded(high)}{TIMES}"
        return f"{low:.2f}{DASH}{high:.2f}{TIMES}"
    if high <= 1:
        low, high = 1 / high, 1 / low
    return f"{factor(low).removesuffix(TIMES)}{DASH}{factor(high)}"


def _bounded(value: float) -> str:
    if value < _SMALL:
        return f"under {_SMALL:g}"
    return f"over {_LARGE:g}" if value > _LARGE else f"{value:.2f}"


def share(value: Number, decimals: int = 1) -> str:
    """A share of 1 in per cent."""
    return f"{100 * value:.{decimals}f} %".replace("-", MINUS)


def share_of_gain(value: Number) -> str:
    """A share in per cent, exact enough that 1 / (1 - share) comes to the factor beside it."""
    return share(value, share_decimals(value, factor))


def points(value: Number, *others: Number) -> str:
    """A difference of shares in percentage points, signed.

    It has one decimal, or two where it and ``others`` (its interval) are all below one point.
    """
    return signed(100 * value, 2 if max(map(abs, (value, *others))) < 0.0095 else 1)


def points_interval(value: Number, interval: tuple[float, float]) -> str:
    """The interval of a difference, with as many decimals as ``points`` gives the value."""
    low, high = interval
    return f"{points(low, value, high)} to {points(high, value, low)}"


def listing(names: list[str], limit: int = 4) -> str:
    """Names joined by commas and a last "and"; those beyond ``limit`` are counted."""
    shown = names[:limit]
    if len(names) > limit:
        shown = [*names[: limit - 1], f"{len(names) - limit + 1} more"]
    if len(shown) < 2:
        return "".join(shown)
    return ", ".join(shown[:-1]) + " and " + shown[-1]


def shortened(name: str, limit: int) -> str:
    """One line of at most so many characters, with an ellipsis where it was cut."""
    name = " ".join(name.split())
    return name if len(name) <= limit else name[: limit - 1].rstrip() + "\N{HORIZONTAL ELLIPSIS}"
