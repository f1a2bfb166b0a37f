"""Accuracy against latency, with the arms that nothing beats joined."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from sparing.compare.page.curves import grey_words
from sparing.compare.page.results import Results
from sparing.report import wording
from sparing.report.facts import metric_name
from sparing.report.figures.chart import Mark, draw_mark
from sparing.report.figures.drawing import Box, Plot, Sheet, free_place
from sparing.report.figures.palette import Look


class _Point(NamedTuple):
    """One arm of the Pareto plot: accuracy in per cent against milliseconds."""

    arm: str
    latency_ms: float
    accuracy: float
    interval: tuple[float, float] | None


def pareto(results: Results) -> Plot:
    """Mean accuracy against the median latency of one call."""
    metric = metric_name(results.config)
    title = f"{metric.capitalize()} against latency"
    setting = results.setting("latency_ratio", "latency_ms")
    points = []
    for arm, time_ms in results.times().items():
        accuracy = results.accuracy(arm)
        if accuracy:
            spread_of = accuracy[1]
            interval = (100 * spread_of[0], 100 * spread_of[1]) if spread_of else None
            points.append(_Point(arm, time_ms, 100 * accuracy[0], interval))
    if not points or setting is None:
        missing = "No arm has both an accuracy and a latency in this run so far."
        return Plot("pareto", title, "", None, missing=missing)
    scope = "the whole model" if setting.scope == "model" else "the attention core alone"
    description = (
        f"Median latency of {scope} at {wording.length(setting.tokens)}, batch {setting.batch}; "
        "up and to the left is better. The grey line joins the arms that no other arm beats in "
        "both. Bars are 95 % intervals over the seeds."
    ) + grey_words(results)
    inside = _inside(results, points)
    if len(inside) < len(points):
        outside = wording.count_of(len(points) - len(inside), "grey arm")
        description += f" Not shown: {outside} far below or far to the right."
    named = tuple(point.arm for point in points if point.arm not in results.grey)

    def draw(look: Look, narrow: bool) -> Figure:
        sheet = Sheet(350, 320, look, True) if narrow else Sheet(520, 400, look)
        return _draw_pareto(results, sheet, inside, metric)

    return Plot("pareto", title, description, draw, named)


def _draw_pareto(results: Results, sheet: Sheet, points: list[_Point], metric: str) -> Figure:
    figure = sheet.figure()
    axes = sheet.axes(figure, 42 if sheet.narrow else 52, 38, 16, 44)
    times = [point.latency_ms for point in points]
    reach = max(max(times) - min(times), 0.1 * max(times))
    axes.set_xlim(min(times) - 0.12 * reach, max(times) + 0.22 * reach)
    front = _front(points)
    axes.step(
        [p.latency_ms for p in front] + [max(times) + 0.22 * reach],
        [p.accuracy for p in front] + [front[-1].accuracy],
        where="post",
        color=sheet.look.muted,
        linewidth=1,
        alpha=0.55,
        zorder=1,
    )
    named = [point for point in points if point.arm not in results.grey]
    for point in points:
        _draw_point(results, sheet, axes, point)
    heights = [end for p in named for end in (p.interval or (p.accuracy, p.accuracy))]
    heights += [point.accuracy for point in points]
    margin = 0.12 * ((max(heights) - min(heights)) or 1.0)
    axes.set_ylim(min(heights) - margin, max(heights) + margin)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} %"))
    axes.locator_params(axis="x", nbins=5)
    axes.locator_params(axis="y", nbins=6)
    sheet.caption(axes, f"{metric.capitalize()}, test split")
    towards = "latency, ms (\N{LEFTWARDS ARROW} faster)"
    axes.set_xlabel(towards, fontsize=sheet.text, color=sheet.look.muted, labelpad=6)
    _label_points(sheet, axes, named)
    return figure


def _draw_point(results: Results, sheet: Sheet, axes: Axes, point: _Point) -> None:
    if point.arm in results.grey:
        place = ([point.latency_ms], [point.accuracy])
        axes.plot(*place, marker="o", markersize=5, color=sheet.look.muted, alpha=0.5, mew=0)
        return
    mark = Mark(point.latency_ms, point.accuracy, y_interval=point.interval, size=9.0)
    draw_mark(sheet, axes, results.position(point.arm), mark)


def _inside(results: Results, points: list[_Point]) -> list[_Point]:
    """All points but the grey ones that would press the others together.

    Those lie beyond Tukey's fences: half as far again as the middle half is wide.
    """
    if not results.grey:
        return points
    low, high = np.percentile([point.accuracy for point in points], (25, 75))
    fast, slow = np.percentile([point.latency_ms for point in points], (25, 75))
    lowest, slowest = low - 1.5 * (high - low), slow + 1.5 * (slow - fast)
    return [
        point
        for point in points
        if point.arm not in results.grey
        or (point.accuracy >= lowest and point.latency_ms <= slowest)
    ]


def _front(points: list[_Point]) -> list[_Point]:
    """The arms that no other arm beats in both latency and accuracy, by latency."""
    front: list[_Point] = []
    for point in sorted(points, key=lambda p: (p.latency_ms, -p.accuracy)):
        if not front or point.accuracy > front[-1].accuracy:
            front.append(point)
    return front


def _line_boxes(axes: Axes, points: list[_Point]) -> list[Box]:
    """The room that the bars and the line of the front take, in pixels."""
    found: list[Box] = []
    for point in points:
        if point.interval:
            low, high = (
                axes.transData.transform((point.latency_ms, end)) for end in point.interval
            )
            found.append((float(low[0]) - 2, float(low[1]), float(low[0]) + 2, float(high[1])))
    front = _front(points)
    ends = [point.latency_ms for point in front[1:]] + [axes.get_xlim()[1]]
    for point, end in zip(front, ends, strict=True):
        left, y = axes.transData.transform((point.latency_ms, point.accuracy))
        right = axes.transData.transform((end, point.accuracy))[0]
        found.append((float(left), float(y) - 2, float(right), float(y) + 2))
    return found


def _label_points(sheet: Sheet, axes: Axes, points: list[_Point]) -> None:
    """Names beside the points where they find room, off the lines if they can."""
    centres = [axes.transData.transform((p.latency_ms, p.accuracy)) for p in points]
    taken: list[Box] = [(x - 6, y - 6, x + 6, y + 6) for x, y in centres]
    lines = _line_boxes(axes, points)
    edge = axes.get_window_extent()
    bounds = (edge.x0, edge.y0, edge.x1 + 10, edge.y1)
    for point, (x, y) in zip(points, centres, strict=True):
        text = wording.shortened(point.arm, 14)
        size = (0.62 * sheet.text * len(text), sheet.text * 1.25)
        at = (float(x), float(y))
        place = free_place(at, size, [*taken, *lines], bounds) or free_place(
            at, size, taken, bounds
        )
        if place is None:
            continue
        left, bottom = place
        taken.append((left, bottom, left + size[0], bottom + size[1]))
        centred = left < x < left + size[0]
        axes.annotate(
            text,
            xy=(x if centred else left if left > x else left + size[0], bottom + size[1] / 2),
            xycoords="figure points",
            fontsize=sheet.text,
            color=sheet.look.ink,
            horizontalalignment="center" if centred else "left" if left > x else "right",
            verticalalignment="center_baseline",
            parse_math=False,
            annotation_clip=False,
        )
