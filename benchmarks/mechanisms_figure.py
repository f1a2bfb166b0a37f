"""The one comparison figure: speed-up over fused softmax by length, a panel for each family."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from sparing.report.figures.drawing import Draw, Sheet, spread
from sparing.report.figures.palette import Look, marker

Curve = Mapping[int, float]
COLUMNS = 3
CONTROL = "control"
TICKS = (64, 512, 4096, 16384)
WIDTH, HEIGHT = 1060, 330
LEFT, TOP, RIGHT, BOTTOM = 52, 40, 112, 46


def drawing(families: Mapping[str, Mapping[str, Curve]]) -> Draw:
    """How to plot the curves of each family's mechanisms."""

    def draw(look: Look, narrow: bool) -> Figure:
        rows = math.ceil(len(families) / COLUMNS)
        sheet = Sheet(WIDTH, HEIGHT * rows, look, narrow)
        figure = sheet.figure()
        every = [curve for curves in families.values() for curve in curves.values()]
        real = [
            c for family, curves in families.items() if family != CONTROL for c in curves.values()
        ]
        for number, (family, curves) in enumerate(families.items()):
            row, column = divmod(number, COLUMNS)
            wide = sheet.width / COLUMNS
            axes = sheet.axes(
                figure,
                column * wide + LEFT,
                row * HEIGHT + TOP,
                sheet.width - (column + 1) * wide + RIGHT,
                sheet.height - (row + 1) * HEIGHT + BOTTOM,
            )
            _scale(axes, real or every)
            _panel(sheet, axes, family, curves, every)
        return figure

    return draw


def _scale(axes: Axes, every: Sequence[Curve]) -> None:
    """One scale for all panels, as high as the real mechanisms go: a control may leave it."""
    lengths = sorted({tokens for curve in every for tokens in curve})
    values = [value for curve in every for value in curve.values()]
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlim(lengths[0] / 1.15, lengths[-1] * 1.15)
    axes.set_ylim(min(values) / 1.3, max(values) * 1.3)
    steps = [step for step in (0.001, 0.01, 0.1, 1, 10, 100, 1000) if step > min(values) / 1.3]
    axes.yaxis.set_major_locator(FixedLocator([step for step in steps if step < max(values) * 1.3]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,g}\N{MULTIPLICATION SIGN}"))
    axes.xaxis.set_major_locator(FixedLocator([n for n in TICKS if n <= lengths[-1]]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda n, _: _short(round(n))))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_minor_locator(NullLocator())


def _short(tokens: int) -> str:
    return f"{tokens // 1024}k" if tokens >= 1024 else str(tokens)


def _panel(
    sheet: Sheet, axes: Axes, family: str, curves: Mapping[str, Curve], every: Sequence[Curve]
) -> None:
    look = sheet.look
    for curve in every:
        axes.plot(list(curve), list(curve.values()), color=look.muted, linewidth=0.7, alpha=0.18)
    axes.axhline(1, color=look.ink, linewidth=1.4, zorder=1.5)
    for position, curve in zip(_positions(curves), curves.values(), strict=True):
        if position == 0:
            continue
        axes.plot(
            list(curve),
            list(curve.values()),
            color=look.colour(position),
            linewidth=1.8,
            marker=marker(position),
            markersize=5,
            markeredgewidth=0,
            zorder=3,
        )
    _labels(sheet, axes, curves)
    axes.annotate(
        family.capitalize(),
        xy=(0, 1),
        xycoords="axes fraction",
        xytext=(0, 14),
        textcoords="offset points",
        fontsize=sheet.text + 1,
        fontweight="bold",
        color=look.ink,
        annotation_clip=False,
    )


def _labels(sheet: Sheet, axes: Axes, curves: Mapping[str, Curve]) -> None:
    """Names right of the panel, each tied to the end of its line by a hairline."""
    to_axes = axes.transData + axes.transAxes.inverted()
    ends = [to_axes.transform((max(c), c[max(c)])) for c in curves.values()]
    ends = [(float(x), float(y)) for x, y in ends]
    height = float(axes.get_position().height) * sheet.height
    places = spread([y for _, y in ends], (sheet.text + 4) / height, 0.0, 1.0)
    drawn = zip(_positions(curves), curves, ends, places, strict=True)
    for position, name, (x, y), label_y in drawn:
        if y <= 1:
            axes.plot(
                [x, 1.04],
                [y, label_y],
                color=sheet.look.colour(position),
                linewidth=0.7,
                alpha=0.6,
                transform=axes.transAxes,
                clip_on=False,
            )
        axes.text(
            1.06,
            label_y,
            name,
            transform=axes.transAxes,
            fontsize=sheet.text - 1,
            color=sheet.look.ink,
            fontweight="normal" if position else "bold",
            verticalalignment="center_baseline",
        )


def _positions(curves: Mapping[str, Curve]) -> list[int]:
    """What gives each mechanism of a panel its colour: 0, ink, for what all are held against."""
    others = [name for name in curves if name != "softmax"]
    return [0 if name == "softmax" else 1 + others.index(name) for name in curves]
