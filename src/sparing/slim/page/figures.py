"""The figures of ``slim``'s survey: the frontier with its controls, and each width alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes

from sparing.report import wording
from sparing.report.figures.chart import Frame, chart, label_axes
from sparing.report.figures.drawing import Plot, Sheet, no_plot, signed_name
from sparing.report.figures.palette import marker
from sparing.report.run import Run
from sparing.slim.page import lookups, prose
from sparing.slim.page.lookups import Point, of_kind, same
from sparing.slim.page.wording import per_cent, scale_of, score_name, width_name

EXITS, DEPTH, RANDOM, DENSE = "early exits", "uniform depth", "random exits", "dense"
POSITIONS = {DENSE: 0, EXITS: 1, DEPTH: 2, RANDOM: 3}
WIDTHS = (4, 6, 5, 7, 9, 8)
TOWARDS = "FLOPs, share of dense (\N{LEFTWARDS ARROW} cheaper)"
SHOWN = 0.12  # of the dense score, below which plans are left out
ROOM = 0.06
BOLD: dict[str, Any] = {"fontweight": "bold", "ha": "right", "zorder": 7}

Lines = Mapping[str, Sequence[tuple[float, float]]]
"""Costs and scores of the plans of each line, cheapest first, in the units of the axes."""


def chip_positions(run: Run) -> dict[str, int]:
    """Every name that a legend may hold, with the position of its colour and marker."""
    widths = enumerate(_widths(lookups.surveyed(run)))
    return {**POSITIONS, **{width_name(width): WIDTHS[n % len(WIDTHS)] for n, width in widths}}


def best(points: Sequence[Point]) -> list[Point]:
    """The points that no other beats in cost and score, cheapest first."""
    front: list[Point] = []
    for point in sorted(points, key=lambda point: (point.cost_share, -point.score)):
        if not front or point.score > front[-1].score:
            front.append(point)
    return front


def frontier(run: Run) -> Plot:
    """Score against FLOPs: early exits, uniform depth, and the control with random exits."""
    points, name, title = lookups.surveyed(run), "frontier", "The frontier"
    if not points or lookups.dense_score(run) is None:
        return no_plot(name, title, prose("no-frontier"))
    front = best(of_kind(points, "exits"))
    random = of_kind(points, "random")  # the same exit rates as a plan of the front
    controls = [next((c for c in random if same(c.plan, point.plan)), None) for point in front]
    lines = {
        EXITS: _line(run, front),
        DEPTH: _line(run, best(of_kind(points, "depth"))),
        RANDOM: _line(run, [point for point in controls if point is not None]),
    }
    lines = {name: line for name, line in lines.items() if line}

    def paint(sheet: Sheet, axes: Axes) -> None:
        _paint_scores(run, sheet, axes, lines, points)
        chosen = lookups.taken(run)
        if chosen is not None and chosen.value is not None:
            at = (100 * chosen.value, scale_of(run).factor * float(chosen.labels["score"] or 0.0))
            ring(sheet, axes, *at)
            sheet.write(axes, "chosen", at, (-10, 9), **BOLD)

    frame = _frame(run, 1060, 470, 330)
    words = _frontier_words(run, points)
    return chart(name, title, words, [*lines, DENSE], POSITIONS, frame, paint)


def widths(run: Run) -> Plot:
    """The front of early exits for each width alone."""
    points, name, title = lookups.surveyed(run), "widths", "By width"
    exits = of_kind(points, "exits")
    lines = {
        width_name(width): _line(run, best([point for point in exits if point.width == width]))
        for width in _widths(points)
    }
    if len(lines) < 2 or lookups.dense_score(run) is None:
        return no_plot(name, title, prose("no-widths"))

    def paint(sheet: Sheet, axes: Axes) -> None:
        _paint_scores(run, sheet, axes, lines, points)

    frame = _frame(run, 520, 400, 320)
    return chart(name, title, prose("figure-widths"), list(lines), {}, frame, paint)


def _line(run: Run, points: Sequence[Point]) -> list[tuple[float, float]]:
    factor = scale_of(run).factor
    return [(100 * point.cost_share, factor * point.score) for point in points]


def _widths(points: list[Point]) -> list[float]:
    return sorted({point.width for point in of_kind(points, "exits")}, reverse=True)


def _frame(run: Run, width: int, height: int, narrow_height: int) -> Frame:
    caption = f"{score_name(run).capitalize()}, {lookups.split(run)}"
    margins, narrow = (58, 62, 18, 48), (44, 38, 18, 48)
    return Frame(TOWARDS, caption, height, narrow_height, width, margins, narrow)


def _frontier_words(run: Run, points: list[Point]) -> str:
    count, scale = lookups.chosen_on(run), scale_of(run)
    inputs = f"one half of {lookups.split(run)}" + (f" ({count:,} inputs)" if count else "")
    words = [prose("figure-frontier", score=score_name(run).capitalize(), inputs=inputs)]
    if scale.shares and count:
        words.append(prose("figure-frontier-step", points=wording.number(100 / count, 2)))
    lowest = _lowest(run, points)
    hidden = sum(point.score * scale.factor < lowest for point in points)
    if hidden:
        words.append(prose("figure-frontier-hidden", plans=wording.count_of(hidden, "plan")))
    return " ".join(words)


def _lowest(run: Run, points: list[Point]) -> float:
    """The lower end of the axis of scores: a share below the dense score or the chosen one."""
    factor, chosen = scale_of(run).factor, lookups.taken(run)
    dense = factor * (lookups.dense_score(run) or 0.0)
    start = dense - SHOWN * abs(dense)
    if chosen:
        start = min(start, factor * float(chosen.labels["score"] or 0.0) - 1e-9)
    return max(start, min(factor * point.score for point in points))


def _paint_scores(run: Run, sheet: Sheet, axes: Axes, lines: Lines, points: list[Point]) -> None:
    """Score against FLOPs, with the floor as a line, dense, and the key above the axes."""
    scale, positions = scale_of(run), chip_positions(run)
    dense, low = scale.factor * (lookups.dense_score(run) or 0.0), _lowest(run, points)
    shown = [point for line in lines.values() for point in line]
    high = max([dense, *(score for _, score in shown)])
    room = ROOM * ((high - low) or 1.0)
    axes.set_ylim(low - room, high + room)
    costs = [cost for cost, score in shown if score >= low]
    left, right = min([*costs, 90.0]), max([*costs, 100.0])
    axes.set_xlim(left - 0.04 * (right - left), right + 0.03 * (right - left))
    floor = lookups.floor(run) * dense
    if low - room <= floor <= high + room:
        floor_line(run, sheet, axes, floor)
    up = "{x:g} %" if scale.shares else "{x:g}"
    label_axes(axes, "{x:g} %", up, 5 if sheet.width < 700 else 9, 6)
    for name, line in reversed(list(lines.items())):
        _draw_steps(sheet, axes, name, positions[name], line)
    axes.plot([100], [dense], marker=marker(0), markersize=9, color=sheet.look.ink, mew=0, zorder=5)
    if not sheet.narrow:
        sheet.write(axes, DENSE, (100.0, dense), (-9, 9), **BOLD)
        _draw_key(sheet, axes, {name: positions[name] for name in lines})


def floor_line(run: Run, sheet: Sheet, axes: Axes, height: float) -> None:
    """The accuracy floor as a line at this height."""
    sheet.level(axes, height, f"floor, {per_cent(lookups.floor(run))} of dense", -15)


def _draw_steps(
    sheet: Sheet, axes: Axes, name: str, position: int, line: Sequence[tuple[float, float]]
) -> None:
    """A line as steps: between two plans the score of the cheaper one holds."""
    main = position == POSITIONS[EXITS]
    axes.step(
        *zip(*line, strict=True),
        where="post",
        color=sheet.look.colour(position),
        linewidth=2.2 if main else 1.5,
        linestyle=(0, (2, 2)) if name == RANDOM else "solid",
        marker=marker(position),
        markersize=(5.0 if main else 6.0) - (1.0 if sheet.narrow else 0.0),
        markeredgewidth=0,
        zorder=4 if main else 3,
    )


def ring(sheet: Sheet, axes: Axes, x: float, y: float) -> None:
    """A ring around the chosen plan."""
    style: dict[str, Any] = {"mfc": "none", "mec": sheet.look.ink, "mew": 1.8, "zorder": 6}
    axes.plot([x], [y], marker="o", markersize=12 if sheet.narrow else 15, **style)


def _draw_key(sheet: Sheet, axes: Axes, positions: Mapping[str, int]) -> None:
    """Markers and names in one row above the axes, under the caption."""
    pixel = 1 / (float(axes.get_position().width) * sheet.width)
    height = 1 / (float(axes.get_position().height) * sheet.height)
    left, level = 4.0, 1 + 15 * height
    for name, position in positions.items():
        signed_name(sheet, axes, (left * pixel, level), 11 * pixel, name, position)
        left += 11 + 0.58 * sheet.text * len(name) + 22
