"""Latency and memory of the attention core against the length, with where the lines cross."""

from __future__ import annotations

import itertools
import math
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from sparing.compare.page import lookups, prose
from sparing.compare.page.lineup import Lineup
from sparing.report import wording
from sparing.report.facts import dense_name
from sparing.report.figures.chart import Frame, chart
from sparing.report.figures.drawing import Plot, Sheet, no_plot, spread
from sparing.report.figures.palette import marker
from sparing.report.run import Run

Curves = dict[str, list[tuple[int, float]]]
STRIP = {"attention_share": "attention's share", "largest_gain": "largest gain"}
NARROW = (42, 38, 14, 44)


def _curves(run: Run, name: str, **labels: str) -> Curves:
    curves = {arm: lookups.curve(run, name, arm, **labels) for arm in run.table.arms}
    return {arm: curve for arm, curve in curves.items() if curve}


def crossover(run: Run, arms: Lineup) -> Plot:
    """The core's latency against the length, one line a variant, crossings ringed."""
    dense, curves = dense_name(run.config), _curves(run, "latency_ms", statistic="p50")
    name, title = "crossover", f"Where the variants overtake {dense}"
    if not curves:
        return no_plot(name, title, prose("no-crossover"))
    named = _named(arms, curves)

    def paint(sheet: Sheet, axes: Axes) -> None:
        _set_lengths(sheet, axes, curves)
        _draw_curves(sheet, axes, arms, curves)
        _draw_rings(run, sheet, axes, arms, curves)
        axes.yaxis.set_major_formatter("{x:,g}")
        if not sheet.narrow:
            _label_ends(sheet, axes, arms, {arm: curves[arm] for arm in named})
            _draw_strip(run, sheet, axes)

    batch = lookups.core_batch(run, "latency_ms")
    words = prose("figure-crossover", batch=batch, dense=dense) + grey_words(arms)
    margins = (132, 38, _room(named, 24), 82)
    caption = "Latency of the attention core, ms"
    frame = Frame("tokens", caption, 500, 340, margins=margins, narrow_margins=NARROW)
    return chart(name, title, words, named, arms.positions, frame, paint)


def memory(run: Run, arms: Lineup) -> Plot:
    """The core's peak memory against the length."""
    name, title, curves = "memory", "Memory against length", _curves(run, "peak_bytes")
    if not curves:
        return no_plot(name, title, prose("no-memory"))
    named = _named(arms, curves)

    def paint(sheet: Sheet, axes: Axes) -> None:
        _set_lengths(sheet, axes, curves)
        _draw_curves(sheet, axes, arms, curves)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _short_bytes(value)))
        if not sheet.narrow:
            _label_ends(sheet, axes, arms, {arm: curves[arm] for arm in named})

    batch = lookups.core_batch(run, "peak_bytes")
    words = prose("figure-memory", batch=batch) + grey_words(arms)
    margins, caption = (62, 38, _room(named, 14), 44), "Peak memory of the attention core"
    frame = Frame("tokens", caption, 400, 320, 520, margins, NARROW)
    return chart(name, title, words, named, arms.positions, frame, paint)


def grey_words(arms: Lineup) -> str:
    """What grey means, where variants are many; begins with a blank."""
    if not arms.grey:
        return ""
    slow = arms.grey > arms.beaten.keys()
    return f" {prose('figure-grey-slow' if slow else 'figure-grey')}"


def _named(arms: Lineup, curves: Curves) -> list[str]:
    """The variants that have a colour and a label."""
    return [arm for arm in curves if arm not in arms.grey]


def _room(named: list[str], letters: int) -> float:
    """Pixels to the right of the axes for the longest name of at most so many letters."""
    longest = max((len(wording.shortened(arm, letters)) for arm in named), default=0)
    return 34 + 0.62 * 13 * longest


def _short_bytes(value: float) -> str:
    for size, unit in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if value >= size:
            return f"{value / size:,g} {unit}"
    return f"{value:,g} B"


def _set_lengths(sheet: Sheet, axes: Axes, curves: Curves) -> None:
    """Both scales logarithmic, with room around all curves over the length."""
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    lengths = sorted({tokens for curve in curves.values() for tokens, _ in curve})
    axes.set_xlim(lengths[0] / 1.12, lengths[-1] * 1.08 if len(lengths) > 1 else lengths[0] * 2)
    values = [value for curve in curves.values() for _, value in curve]
    low, high = min(values), max(values)
    axes.set_ylim(low / 1.35, high * 1.35)
    axes.yaxis.set_major_locator(FixedLocator(_steps(low, high, binary=high > 1e4)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_locator(NullLocator())
    shown = lengths[:: math.ceil(len(lengths) / (7 if sheet.width < 700 else 14))]
    axes.xaxis.set_major_locator(FixedLocator(shown))
    axes.xaxis.set_major_formatter("{x:,.0f}")


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


def _draw_curves(sheet: Sheet, axes: Axes, arms: Lineup, curves: Curves) -> None:
    for arm, curve in curves.items():
        points = list(zip(*curve, strict=True))
        if arm in arms.grey:
            axes.plot(*points, color=sheet.look.muted, linewidth=1, alpha=0.4, zorder=1)
            continue
        position = arms.positions[arm]
        style: dict[str, Any] = {"linewidth": 2.6, "zorder": 3} if position == 0 else {"lw": 1.7}
        style |= {"marker": marker(position), "markersize": 4.5 if sheet.narrow else 5.5, "mew": 0}
        axes.plot(*points, color=sheet.look.colour(position), **style)


def _label_ends(sheet: Sheet, axes: Axes, arms: Lineup, curves: Curves) -> None:
    """Each variant's name at the end of its line, without overlap, tied to it by a hairline."""
    to_axes = axes.transData + axes.transAxes.inverted()
    ends = [to_axes.transform(curve[-1]) for curve in curves.values()]
    height = float(axes.get_position().height) * sheet.height
    levels = spread([float(y) for _, y in ends], (sheet.text + 5) / height, 0.0, 1.0)
    pixel = 1 / (float(axes.get_position().width) * sheet.width)
    start = 1 + 10 * pixel
    for arm, (x, y), level in zip(curves, ends, levels, strict=True):
        position = arms.positions[arm]
        tie = axes.plot([float(x), start], [float(y), level], linewidth=0.7, alpha=0.6)
        sign = axes.plot([start], [level], marker=marker(position), markersize=6, mew=0)
        for line in (*tie, *sign):
            colour = sheet.look.colour(position)
            line.set(color=colour, transform=axes.transAxes, clip_on=False)
        style = {"va": "center_baseline", "fontweight": "bold" if position == 0 else "normal"}
        label = wording.shortened(arm, 24 if sheet.width > 700 else 14)
        sheet.write(axes, label, (start, level), (10, 0), "axes fraction", **style)


def _draw_rings(run: Run, sheet: Sheet, axes: Axes, arms: Lineup, curves: Curves) -> None:
    """A ring on the variant's line where it passes the baseline's."""
    for arm, curve in curves.items():
        newest = lookups.crossover(run, arm)
        tokens = None if newest is None else newest.value
        height = None if tokens is None else _interpolated(curve, tokens)
        if tokens is None or height is None or arm in (run.config["baseline"], *arms.grey):
            continue
        colour, ground = sheet.look.colour(arms.positions[arm]), sheet.look.ground
        style: dict[str, Any] = {"marker": "o", "mfc": ground, "mec": colour, "mew": 2, "zorder": 4}
        axes.plot([tokens], [height], markersize=9 if sheet.narrow else 11, **style)


def _interpolated(curve: list[tuple[int, float]], tokens: float) -> float | None:
    """The curve's value at a length between two of its points, straight on both log scales."""
    for (left, low), (right, high) in itertools.pairwise(curve):
        if left <= tokens <= right:
            way = math.log(tokens / left) / math.log(right / left)
            return float(low * (high / low) ** way)
    return None


def _draw_strip(run: Run, sheet: Sheet, axes: Axes) -> None:
    """Under each length, attention's share of the model's time and the largest possible gain."""
    axes.set_xlabel("")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda *_: ""))
    lengths = [round(float(tick)) for tick in axes.xaxis.get_majorticklocs()]
    lines = {"tokens": [f"{tokens:,}" for tokens in lengths]}
    for name, title in STRIP.items():
        values = [run.table.value(name, tokens=tokens) for tokens in lengths]
        if any(value is not None for value in values):
            lines[title] = [_strip_value(name, value) for value in values]
    for number, (title, texts) in enumerate(lines.items()):
        drop = -20 - 21 * number
        style = {"color": sheet.look.muted, "ha": "right", "va": "center_baseline"}
        sheet.write(axes, title, (0.0, 0), (-14, drop), "axes fraction", **style)
        style |= {"color": sheet.look.ink if number else sheet.look.muted, "ha": "center"}
        for tokens, text in zip(lengths, texts, strict=True):
            sheet.write(axes, text, (tokens, 0), (0, drop), ("data", "axes fraction"), **style)


def _strip_value(name: str, value: float | None) -> str:
    if value is None:
        return wording.DASH
    return wording.share_of_gain(value) if name == "attention_share" else wording.factor(value)
