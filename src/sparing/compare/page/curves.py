"""Latency and memory of the attention core against the length, with where the lines cross."""

from __future__ import annotations

import itertools
import math

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from sparing.compare.page.results import Results
from sparing.report import wording
from sparing.report.facts import dense_name
from sparing.report.figures.drawing import Plot, Sheet, spread
from sparing.report.figures.palette import Look, marker

Curves = dict[str, list[tuple[int, float]]]


def _curves(results: Results, name: str, **labels: str) -> Curves:
    found = {arm: results.curve(name, arm, **labels) for arm in results.arms}
    return {arm: curve for arm, curve in found.items() if curve}


def crossover(results: Results) -> Plot:
    """The core's latency against the length, one line an arm, crossings ringed."""
    dense = dense_name(results.config)
    title = f"Where the arms overtake {dense}"
    curves = _curves(results, "latency_ms", statistic="p50")
    if not curves:
        missing = "The latency of the attention core was not measured in this run so far."
        return Plot("crossover", title, "", None, missing=missing)
    batch = results.core_batch("latency_ms")
    description = (
        f"Median latency of the attention core alone at batch {batch}, both axes logarithmic; "
        f"a ring marks the length from which on an arm is faster than {dense}."
    ) + grey_words(results)

    def draw(look: Look, narrow: bool) -> Figure:
        sheet = Sheet(350, 340, look, True) if narrow else Sheet(1060, 500, look)
        named = _shown(results, curves)
        figure, axes = _length_axes(sheet, curves, named, strip=not narrow)
        _draw_curves(results, sheet, axes, curves)
        _draw_rings(results, sheet, axes, curves)
        sheet.caption(axes, "Latency of the attention core, ms")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
        if not narrow:
            _draw_strip(results, sheet, axes)
        return figure

    return Plot("crossover", title, description, draw, _shown(results, curves))


def memory(results: Results) -> Plot:
    """The core's peak memory against the length."""
    title = "Memory against length"
    curves = _curves(results, "peak_bytes")
    if not curves:
        missing = "The memory of the attention core was not measured in this run so far."
        return Plot("memory", title, "", None, missing=missing)
    description = (
        "Peak memory that one call of the attention core alone adds, at batch "
        f"{results.core_batch('peak_bytes')}; both axes logarithmic."
    ) + grey_words(results)

    def draw(look: Look, narrow: bool) -> Figure:
        sheet = Sheet(350, 320, look, True) if narrow else Sheet(520, 400, look)
        figure, axes = _length_axes(sheet, curves, _shown(results, curves), strip=False)
        _draw_curves(results, sheet, axes, curves)
        sheet.caption(axes, "Peak memory of the attention core")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _short_bytes(value)))
        return figure

    return Plot("memory", title, description, draw, _shown(results, curves))


def grey_words(results: Results) -> str:
    """What grey means, where arms are many; begins with a blank."""
    if not results.grey:
        return ""
    if results.grey > results.beaten.keys():
        return " Grey are the arms that others beat, and the slowest of too many to tell apart."
    return (
        " Grey are arms that others beat in accuracy and latency, both at this task's length and "
        "at the longest."
    )


def _shown(results: Results, curves: Curves) -> tuple[str, ...]:
    """The arms that have a colour and a label."""
    return tuple(arm for arm in curves if arm not in results.grey)


def _short_bytes(value: float) -> str:
    for size, unit in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if value >= size:
            return f"{value / size:,g} {unit}"
    return f"{value:,g} B"


def _length_axes(
    sheet: Sheet, curves: Curves, named: tuple[str, ...], *, strip: bool
) -> tuple[Figure, Axes]:
    """Axes for curves over the length, both scales logarithmic, with room for what surrounds."""
    figure = sheet.figure()
    longest = max((len(_label(arm, sheet)) for arm in named), default=0)
    right = 14.0 if sheet.narrow else 34 + 0.62 * sheet.text * longest
    left = 132.0 if strip else 42.0 if sheet.narrow else 62.0
    axes = sheet.axes(figure, left, 38, right, 82 if strip else 44)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    lengths = sorted({tokens for curve in curves.values() for tokens, _ in curve})
    axes.set_xlim(lengths[0] / 1.12, lengths[-1] * 1.08 if len(lengths) > 1 else lengths[0] * 2)
    values = [value for curve in curves.values() for _, value in curve]
    axes.set_ylim(min(values) / 1.35, max(values) * 1.35)
    binary = max(values) > 1e4
    axes.yaxis.set_major_locator(FixedLocator(_steps(min(values), max(values), binary=binary)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_locator(NullLocator())
    shown = lengths[:: math.ceil(len(lengths) / (7 if sheet.narrow or sheet.width < 700 else 14))]
    axes.xaxis.set_major_locator(FixedLocator(shown))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    if not strip:
        axes.set_xlabel("tokens", fontsize=sheet.text, color=sheet.look.muted, labelpad=6)
    return figure, axes


def _steps(low: float, high: float, *, binary: bool) -> list[float]:
    """Round numbers for a logarithmic axis: few where it is long, enough where it is short."""
    base = 2.0 if binary else 10.0
    first, last = math.floor(math.log(low, base)), math.ceil(math.log(high, base))
    powers = [base**exponent for exponent in range(first, last + 1)]
    if binary:
        stride = max(1, math.ceil(len(powers) / 7))
        return [power for power in powers if round(math.log2(power)) % stride == 0]
    if last - first > 2:
        return powers
    return [power * step for power in powers for step in (1.0, 2.0, 5.0)]


def _draw_curves(results: Results, sheet: Sheet, axes: Axes, curves: Curves) -> None:
    for arm, curve in curves.items():
        lengths, values = zip(*curve, strict=True)
        if arm in results.grey:
            axes.plot(lengths, values, color=sheet.look.muted, linewidth=1, alpha=0.4, zorder=1)
            continue
        position = results.position(arm)
        axes.plot(
            lengths,
            values,
            color=sheet.look.colour(position),
            linewidth=2.6 if position == 0 else 1.7,
            marker=marker(position),
            markersize=5.5 if not sheet.narrow else 4.5,
            markeredgewidth=0,
            zorder=3 if position == 0 else 2,
        )
    if not sheet.narrow:
        _label_ends(results, sheet, axes, curves)


def _label_ends(results: Results, sheet: Sheet, axes: Axes, curves: Curves) -> None:
    """Each arm's name at the end of its line, moved apart, tied to the end by a hairline."""
    to_axes = axes.transData + axes.transAxes.inverted()
    ends = {arm: to_axes.transform(curves[arm][-1]) for arm in _shown(results, curves)}
    height = float(axes.get_position().height) * sheet.height
    places = spread([float(y) for _, y in ends.values()], (sheet.text + 5) / height, 0.0, 1.0)
    pixel = 1 / (float(axes.get_position().width) * sheet.width)
    for (arm, (x, y)), place in zip(ends.items(), places, strict=True):
        position = results.position(arm)
        colour = sheet.look.colour(position)
        start = 1 + 10 * pixel
        tie = axes.plot([float(x), start], [float(y), place], linewidth=0.7, alpha=0.6)
        sign = axes.plot([start], [place], marker=marker(position), markersize=6, mew=0)
        for line in (*tie, *sign):
            line.set(color=colour, transform=axes.transAxes, clip_on=False)
        axes.text(
            start + 10 * pixel,
            place,
            _label(arm, sheet),
            transform=axes.transAxes,
            fontsize=sheet.text,
            color=sheet.look.ink,
            verticalalignment="center_baseline",
            fontweight="bold" if position == 0 else "normal",
            parse_math=False,
        )


def _label(arm: str, sheet: Sheet) -> str:
    return wording.shortened(arm, 24 if sheet.width > 700 else 14)


def _draw_rings(results: Results, sheet: Sheet, axes: Axes, curves: Curves) -> None:
    """A ring on the arm's line where it passes the baseline's."""
    for arm, curve in curves.items():
        newest = results.crossover(arm)
        tokens = None if newest is None else newest.value
        height = None if tokens is None else _interpolated(curve, tokens)
        if tokens is None or height is None or arm in (results.baseline, *results.grey):
            continue
        axes.plot(
            [tokens],
            [height],
            marker="o",
            markersize=11 if not sheet.narrow else 9,
            markerfacecolor=sheet.look.ground,
            markeredgecolor=sheet.look.colour(results.position(arm)),
            markeredgewidth=2,
            zorder=4,
        )


def _interpolated(curve: list[tuple[int, float]], tokens: float) -> float | None:
    """The curve's value at a length between two of its points, straight on both log scales."""
    for (left, low), (right, high) in itertools.pairwise(curve):
        if left <= tokens <= right:
            way = math.log(tokens / left) / math.log(right / left)
            return float(low * (high / low) ** way)
    return None


def _draw_strip(results: Results, sheet: Sheet, axes: Axes) -> None:
    """Under each length, attention's share of the model's time and the largest possible gain."""
    axes.xaxis.set_major_formatter(FuncFormatter(lambda *_: ""))
    lengths = [round(float(place)) for place in axes.xaxis.get_majorticklocs()]
    lines: list[tuple[str, list[str]]] = [("tokens", [f"{tokens:,}" for tokens in lengths])]
    for title, name in (("attention's share", "attention_share"), ("largest gain", "largest_gain")):
        values = [results.value(name, tokens=tokens) for tokens in lengths]
        if any(value is not None for value in values):
            lines.append((title, [_strip_value(name, value) for value in values]))
    for line, (title, texts) in enumerate(lines):
        drop = -20 - 21 * line
        colour = sheet.look.ink if line else sheet.look.muted
        _strip_text(sheet, axes, ("axes fraction", 0.0, -14), drop, title, sheet.look.muted)
        for tokens, text in zip(lengths, texts, strict=True):
            _strip_text(sheet, axes, ("data", float(tokens), 0), drop, text, colour)


def _strip_value(name: str, value: float | None) -> str:
    if value is None:
        return "\N{EN DASH}"
    return wording.share_of_gain(value) if name == "attention_share" else wording.factor(value)


def _strip_text(
    sheet: Sheet, axes: Axes, at: tuple[str, float, int], drop: int, text: str, colour: str
) -> None:
    kind, x, shift = at
    axes.annotate(
        text,
        xy=(x, 0),
        xycoords=(kind, "axes fraction"),
        xytext=(shift, drop),
        textcoords="offset points",
        fontsize=sheet.text,
        color=colour,
        horizontalalignment="right" if kind == "axes fraction" else "center",
        verticalalignment="center_baseline",
        parse_math=False,
        annotation_clip=False,
    )
