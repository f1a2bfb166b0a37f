"""Charts of named series: one frame around all of them, and lines along a number."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import (
    FuncFormatter,
    LogLocator,
    MaxNLocator,
    NullFormatter,
    NullLocator,
)

from sparing.core.record import Record
from sparing.report import wording
from sparing.report.figures.drawing import Number, Plot, Sheet, key_column
from sparing.report.figures.palette import Look, marker

BEFORE_ONE = 0.7
"""The position of 0 on an axis of powers: one step before 1."""

Interval = tuple[float, float] | None
Point = tuple[float, float, Interval]
Lines = Mapping[str, Sequence[Point]]
Margins = tuple[Number, Number, Number, Number]


@dataclass(frozen=True)
class Scales:
    """The axes of a figure: what they show, whether by powers, and a level to compare with.

    ``across`` is a value on the horizontal axis to mark, such as the length of training.
    """

    label: str
    caption: str
    log_x: bool = False
    log_y: bool = False
    per_cent: bool = False
    level: float | None = None
    across: float | None = None
    bands: bool = False


def points(line: Sequence[tuple[float, Record]], factor: float = 1.0) -> list[Point]:
    """Records along a number as points with intervals."""
    return [
        (x, factor * float(record.value), interval_of(record, factor))
        for x, record in line
        if record.value is not None
    ]


def interval_of(record: Record, factor: float = 1.0) -> Interval:
    """A record's interval, scaled like its value."""
    ends = record.interval
    return None if ends is None else (factor * float(ends[0]), factor * float(ends[1]))


@dataclass(frozen=True)
class Mark:
    """A point with its intervals, along both axes where there are two."""

    x: float
    y: float
    x_interval: Interval = None
    y_interval: Interval = None
    size: float = 8.0
    hollow: bool = False


def draw_mark(sheet: Sheet, axes: Axes, position: int, mark: Mark) -> None:
    """Draw it in the sign and colour of a position, its intervals behind."""
    colour = sheet.look.colour(position)
    bars: dict[str, Any] = {"color": colour, "linewidth": 1.2, "alpha": 0.6, "zorder": 2}
    if mark.x_interval is not None:
        axes.hlines(mark.y, *mark.x_interval, **bars)
    if mark.y_interval is not None:
        axes.vlines(mark.x, *mark.y_interval, **bars)
    axes.plot(
        [mark.x],
        [mark.y],
        marker=marker(position),
        markersize=mark.size,
        markerfacecolor=sheet.look.ground if mark.hollow else colour,
        markeredgecolor=colour,
        markeredgewidth=1.5 if mark.hollow else 0,
        linestyle="none",
        zorder=4,
    )


def lines_of(
    records: Iterable[Record],
    by: str,
    along: str,
    factor: float = 1.0,
    intervals: bool = True,
) -> dict[str, list[Point]]:
    """Records as lines that one label names, along another that is a number."""
    lines: dict[str, list[Point]] = {}
    for record in records:
        for x, y, ends in points([(float(record.labels[along] or 0), record)], factor):
            point = (x, y, ends if intervals else None)
            lines.setdefault(str(record.labels[by]), []).append(point)
    return {name: sorted(line, key=lambda point: point[0]) for name, line in lines.items()}


@dataclass(frozen=True)
class Frame:
    """What surrounds a chart: the words on both axes, and the sizes of its two forms in pixels.

    ``label`` is under the horizontal axis, ``caption`` above the vertical one. ``margins`` and
    ``narrow_margins`` are those to the left, above, to the right and below. Without ``margins`` a
    column to the right has the signs of all names.
    """

    label: str
    caption: str
    height: int = 420
    narrow_height: int = 320
    width: int = 1060
    margins: Margins | None = None
    narrow_margins: Margins = (56, 38, 14, 50)


def chart(
    name: str,
    title: str,
    description: str,
    names: Sequence[str],
    positions: Mapping[str, int],
    frame: Frame,
    paint: Callable[[Sheet, Axes], None],
) -> Plot:
    """A plot of named series, with their signs beside it where it is wide.

    ``paint`` draws on the axes and sets their limits and ticks; ``positions`` give names their
    signs and colours. In a key column names go by position, else they stay in their order.
    """
    ordered = tuple(names)
    if frame.margins is None:
        ordered = tuple(sorted(names, key=lambda name: (positions[name], name)))
    # a long name takes about 7 pixels a letter
    beside = max(190, 46 + 7 * max(map(len, ordered), default=0))
    margins = frame.margins or (frame.narrow_margins[0], 38, beside, 50)

    def draw(look: Look, narrow: bool) -> Figure:
        size = (350, frame.narrow_height) if narrow else (frame.width, frame.height)
        sheet = Sheet(*size, look, narrow)
        figure = sheet.figure()
        left, top, right, bottom = frame.narrow_margins if narrow else margins
        axes = sheet.axes(figure, left, top, right, bottom)
        sheet.caption(axes, frame.caption, top - 26)
        axes.set_xlabel(frame.label, fontsize=sheet.text, color=look.muted, labelpad=6)
        paint(sheet, axes)
        if not narrow and frame.margins is None:
            key_column(sheet, axes, ordered, positions)
        return figure

    return Plot(name, title, description, draw, ordered)


def label_axes(axes: Axes, across: str, up: str, across_steps: int, up_steps: int) -> None:
    """Numbers on both axes in these forms, such as ``{x:g} %``, at most so many steps of them."""
    axes.xaxis.set_major_formatter(across)
    axes.yaxis.set_major_formatter(up)
    axes.locator_params(axis="x", nbins=across_steps)
    axes.locator_params(axis="y", nbins=up_steps)


def lines_plot(
    name: str,
    title: str,
    description: str,
    lines: Lines,
    positions: Mapping[str, int],
    scales: Scales,
    missing: str = "Nothing of this was measured so far.",
) -> Plot:
    """One line for each name, with intervals where there are any."""
    lines = {arm: line for arm, line in lines.items() if line}
    if not lines:
        return Plot(name, title, "", None, missing=missing)

    def paint(sheet: Sheet, axes: Axes) -> None:
        look = sheet.look
        _set_scales(axes, lines, scales)
        dashed: dict[str, Any] = {"color": look.muted, "linewidth": 1, "linestyle": (0, (4, 4))}
        if scales.level is not None:
            axes.axhline(scales.level, **dashed)
        if scales.across is not None:
            axes.axvline(scales.across, **dashed)
        for arm, line in lines.items():
            position = positions[arm]
            _draw_line(axes, line, look.colour(position), marker(position), scales.bands)
        _set_ticks(sheet, axes, lines, scales)

    frame = Frame(scales.label, scales.caption)
    return chart(name, title, description, list(lines), positions, frame, paint)


def _draw_line(axes: Axes, line: Sequence[Point], colour: str, sign: str, bands: bool) -> None:
    xs, ys = [x for x, _, _ in line], [y for _, y, _ in line]
    axes.plot(
        xs,
        ys,
        color=colour,
        linewidth=1.6,
        marker=sign,
        markersize=0 if bands and len(line) > 1 else 6,
        markeredgewidth=0,
    )
    ends = [(x, interval) for x, _, interval in line if interval is not None]
    if bands and ends:
        lows, highs = [low for _, (low, _) in ends], [high for _, (_, high) in ends]
        axes.fill_between([x for x, _ in ends], lows, highs, color=colour, alpha=0.15, linewidth=0)
        return
    for x, (low, high) in ends:
        axes.plot([x, x], [low, high], color=colour, linewidth=1.1, alpha=0.55)


def _set_scales(axes: Axes, lines: Lines, scales: Scales) -> None:
    if scales.log_x:
        axes.set_xscale("log")
    if scales.log_y:
        axes.set_yscale("log")
    # Intervals of few seeds may be far wider than all lines: lines decide what is shown.
    ys = [y for line in lines.values() for _, y, _ in line]
    if scales.level is not None:
        ys.append(scales.level)
    low, high = min(ys), max(ys)
    if scales.log_y:
        axes.set_ylim(low / 1.4, high * 1.4)
    else:
        room = 0.12 * (high - low) or 0.1 * abs(high) or 1.0
        axes.set_ylim(low - room, high + room)


def _at(value: float) -> str:
    return "0" if abs(value - BEFORE_ONE) < 1e-9 else f"{value:,.6g}"


def _apart(sheet: Sheet, axes: Axes, xs: Sequence[float]) -> list[float]:
    """The ticks with labels that do not run into the one before; at most eight of them."""
    # the labels of this font are as wide as 0.64 of its size a letter
    letter = 0.64 * sheet.text
    shown, end = [], -math.inf
    for x in xs[:: -(-len(xs) // 8)]:
        middle, _ = axes.transData.transform((x, 1.0))
        half = letter * len(_at(x)) / 2
        if middle - half > end:
            shown.append(x)
            end = middle + half + letter
    return shown


def _set_ticks(sheet: Sheet, axes: Axes, lines: Lines, scales: Scales) -> None:
    if not scales.log_x and all(x == round(x) for line in lines.values() for x, _, _ in line):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if scales.log_x:
        xs = sorted({x for line in lines.values() for x, _, _ in line})
        axes.set_xlim(xs[0] / 1.1, xs[-1] * 1.1)
        axes.set_xticks(_apart(sheet, axes, xs))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _at(value)))
    if scales.log_y:
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: wording.trimmed(value)))
    if scales.per_cent:
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} %"))
