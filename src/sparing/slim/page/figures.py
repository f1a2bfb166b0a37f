"""The figures of ``slim``: the frontier with its controls, its widths, and what time said of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from sparing.report import wording
from sparing.report.figures.drawing import Plot, Sheet, signed_name
from sparing.report.figures.palette import Look, marker
from sparing.slim.page.results import Point, SlimResults, same
from sparing.slim.page.wording import per_cent, scale_of, score_name, width_name

EXITS, DEPTH, RANDOM, DENSE = "early exits", "uniform depth", "random exits", "dense"
POSITIONS = {DENSE: 0, EXITS: 1, DEPTH: 2, RANDOM: 3}
WIDTHS = (4, 6, 5, 7, 9, 8)
_SHOWN = 0.12
_ROOM = 0.06


@dataclass(frozen=True)
class _Series:
    """A named line: its points in per cent, cheapest first, and what gives it colour and marker."""

    name: str
    position: int
    places: tuple[tuple[float, float], ...]


def chip_positions(results: SlimResults) -> dict[str, int]:
    """Every name that a figure's legend may hold, with what gives it colour and marker."""
    named = {width_name(width): WIDTHS[n % len(WIDTHS)] for n, width in enumerate(_widths(results))}
    return {**POSITIONS, **named}


def best(points: Sequence[Point]) -> list[Point]:
    """Those that no other beats in cost and score, cheapest first."""
    front: list[Point] = []
    for point in sorted(points, key=lambda each: (each.cost_share, -each.score)):
        if not front or point.score > front[-1].score:
            front.append(point)
    return front


def frontier(results: SlimResults) -> Plot:
    """Score against arithmetic: exits, uniform depth, and the control that leaves at random."""
    title = "The frontier"
    dense = results.dense_score
    if not results.points or dense is None:
        missing = "The frontier was not surveyed in this run so far."
        return Plot("frontier", title, "", None, missing=missing)
    series = _frontier_series(results)
    named = tuple(each.name for each in series)
    description = _frontier_words(results)

    def draw(look: Look, narrow: bool) -> Figure:
        sheet = Sheet(350, 330, look, True) if narrow else Sheet(1060, 470, look)
        figure, axes = _score_axes(results, sheet, series)
        _draw_steps(sheet, axes, series)
        _draw_dense(results, sheet, axes)
        _draw_chosen(results, sheet, axes)
        if not narrow:
            _draw_key(sheet, axes, [(each.name, each.position) for each in series])
        return figure

    return Plot("frontier", title, description, draw, (*named, DENSE))


def widths(results: SlimResults) -> Plot:
    """The front of early exits for each width alone."""
    title = "By width"
    series = _width_series(results)
    if len(series) < 2 or results.dense_score is None:
        return Plot("widths", title, "", None, missing="One width was tried.")
    description = (
        "The best early exits of each share of heads and neurons, axes as above. Where a narrow "
        "line lies above a wide one, cutting width is the cheaper way."
    )

    def draw(look: Look, narrow: bool) -> Figure:
        sheet = Sheet(350, 320, look, True) if narrow else Sheet(520, 400, look)
        figure, axes = _score_axes(results, sheet, series)
        _draw_steps(sheet, axes, series)
        _draw_dense(results, sheet, axes)
        if not narrow:
            _draw_key(sheet, axes, [(each.name, each.position) for each in series])
        return figure

    return Plot("widths", title, description, draw, tuple(each.name for each in series))


def _frontier_series(results: SlimResults) -> list[_Series]:
    factor = scale_of(results).factor
    front = best(results.of_kind("exits"))
    control = [_control(results, point) for point in front]
    lines = [
        (EXITS, front),
        (DEPTH, best(results.of_kind("depth"))),
        (RANDOM, [point for point in control if point is not None]),
    ]
    return [
        _Series(name, POSITIONS[name], _places(points, factor)) for name, points in lines if points
    ]


def _width_series(results: SlimResults) -> list[_Series]:
    factor, exits = scale_of(results).factor, results.of_kind("exits")
    named = chip_positions(results)
    lines = {
        width_name(width): best([point for point in exits if point.width == width])
        for width in _widths(results)
    }
    return [_Series(name, named[name], _places(points, factor)) for name, points in lines.items()]


def _widths(results: SlimResults) -> list[float]:
    return sorted({point.width for point in results.of_kind("exits")}, reverse=True)


def _control(results: SlimResults, point: Point) -> Point | None:
    """The control of a plan: as many leave after each layer, at random."""
    found = (each for each in results.of_kind("random") if same(each.plan, point.plan))
    return next(found, None)


def _places(points: Sequence[Point], factor: float) -> tuple[tuple[float, float], ...]:
    return tuple((100 * point.cost_share, factor * point.score) for point in points)


def _frontier_words(results: SlimResults) -> str:
    count = results.chosen_on
    inputs = f"one half of {results.split}" + (f" ({count:,} inputs)" if count else "")
    words = (
        f"{score_name(results).capitalize()} on {inputs} against arithmetic; up and to the left is "
        "better. Early exits let an input leave when the model is sure; uniform depth lets all "
        "leave after one layer; random exits let as many leave as early exits do, but others, so "
        "the gap is what knowing whom to let go is worth. Each line joins its best plans of all "
        "widths. They were picked on these inputs and flatter a little: the table of forms is on "
        "test inputs."
    )
    if scale_of(results).shares and count:
        one = wording.number(100 / count, 2)
        words += f" One input is worth {one} points, so small steps are chance."
    hidden = sum(
        point.score * scale_of(results).factor < _lowest(results) for point in results.points
    )
    if hidden:
        words += f" Not shown: {wording.count_of(hidden, 'plan')} far below."
    return words


def _lowest(results: SlimResults) -> float:
    """Where the axis of scores begins: a part below the dense model's, or the choice's."""
    factor = scale_of(results).factor
    dense = factor * (results.dense_score or 0.0)
    scores = [factor * point.score for point in results.points]
    chosen = results.taken
    kept = [factor * float(chosen.labels["score"] or 0.0)] if chosen else []
    start = min([dense - _SHOWN * abs(dense), *(score - 1e-9 for score in kept)])
    return max(start, min(scores))


def _score_axes(
    results: SlimResults, sheet: Sheet, series: Sequence[_Series]
) -> tuple[Figure, Axes]:
    """Axes of score against arithmetic, with the floor as a line."""
    scale = scale_of(results)
    figure = sheet.figure()
    key = 0 if sheet.narrow else 24
    axes = sheet.axes(figure, 44 if sheet.narrow else 58, 38 + key, 18, 48)
    dense = scale.factor * (results.dense_score or 0.0)
    tops = [dense, *(score for each in series for _, score in each.places)]
    low, high = _lowest(results), max(tops)
    room = _ROOM * ((high - low) or 1.0)
    axes.set_ylim(low - room, high + room)
    costs = [cost for each in series for cost, score in each.places if score >= low]
    left, right = min([*costs, 90.0]), max([*costs, 100.0])
    axes.set_xlim(left - 0.04 * (right - left), right + 0.03 * (right - left))
    _draw_floor(results, sheet, axes)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} %"))
    sign = " %" if scale.shares else ""
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}{sign}"))
    axes.locator_params(axis="x", nbins=5 if sheet.width < 700 else 9)
    axes.locator_params(axis="y", nbins=6)
    sheet.caption(axes, f"{score_name(results).capitalize()}, {results.split}", 12 + key)
    towards = "arithmetic, share of dense (\N{LEFTWARDS ARROW} cheaper)"
    axes.set_xlabel(towards, fontsize=sheet.text, color=sheet.look.muted, labelpad=6)
    return figure, axes


def _draw_floor(results: SlimResults, sheet: Sheet, axes: Axes) -> None:
    """The score to keep as a line, where the axis reaches it."""
    floor = results.floor * scale_of(results).factor * (results.dense_score or 0.0)
    if axes.get_ylim()[0] <= floor <= axes.get_ylim()[1]:
        floor_line(results, sheet, axes, floor)


def floor_line(results: SlimResults, sheet: Sheet, axes: Axes, floor: float) -> None:
    """What has to be kept, as a line at this height."""
    axes.axhline(floor, color=sheet.look.muted, linewidth=1, linestyle=(0, (4, 4)), zorder=1)
    axes.annotate(
        f"floor, {per_cent(results.floor)} of dense",
        xy=(1, floor),
        xycoords=("axes fraction", "data"),
        xytext=(-2, -15),
        textcoords="offset points",
        fontsize=sheet.text - 1,
        color=sheet.look.muted,
        horizontalalignment="right",
        parse_math=False,
    )


def _draw_steps(sheet: Sheet, axes: Axes, series: Sequence[_Series]) -> None:
    """Each line as steps: between two plans there is none, so the cheaper one's score holds."""
    for each in reversed(series):
        costs, scores = zip(*each.places, strict=True)
        main = each.position == POSITIONS[EXITS]
        control = each.position == POSITIONS[RANDOM]
        axes.step(
            costs,
            scores,
            where="post",
            color=sheet.look.colour(each.position),
            linewidth=2.2 if main else 1.5,
            linestyle=(0, (2, 2)) if control else "solid",
            marker=marker(each.position),
            markersize=(5.0 if main else 6.0) - (1.0 if sheet.narrow else 0.0),
            markeredgewidth=0,
            zorder=4 if main else 3,
        )


def _draw_dense(results: SlimResults, sheet: Sheet, axes: Axes) -> None:
    score = scale_of(results).factor * (results.dense_score or 0.0)
    axes.plot([100], [score], marker=marker(0), markersize=9, color=sheet.look.ink, mew=0, zorder=5)
    if not sheet.narrow:
        _label(sheet, axes, (100.0, score), (-9, 9), "dense", right=True)


def _draw_chosen(results: SlimResults, sheet: Sheet, axes: Axes) -> None:
    """A ring around the plan that was chosen."""
    chosen = results.taken
    if chosen is None or chosen.value is None:
        return
    score = scale_of(results).factor * float(chosen.labels["score"] or 0.0)
    ring(sheet, axes, 100 * chosen.value, score)
    _label(sheet, axes, (100 * chosen.value, score), (-10, 9), "chosen", right=True)


def ring(sheet: Sheet, axes: Axes, x: float, y: float) -> None:
    """A ring around what was chosen."""
    axes.plot(
        [x],
        [y],
        marker="o",
        markersize=15 if not sheet.narrow else 12,
        markerfacecolor="none",
        markeredgecolor=sheet.look.ink,
        markeredgewidth=1.8,
        zorder=6,
    )


def _label(
    sheet: Sheet,
    axes: Axes,
    place: tuple[float, float],
    away: tuple[int, int],
    text: str,
    *,
    right: bool = False,
) -> None:
    axes.annotate(
        text,
        xy=place,
        xytext=away,
        textcoords="offset points",
        fontsize=sheet.text,
        color=sheet.look.ink,
        fontweight="bold",
        horizontalalignment="right" if right else "left",
        parse_math=False,
        annotation_clip=False,
        zorder=7,
    )


def _draw_key(sheet: Sheet, axes: Axes, names: Sequence[tuple[str, int]]) -> None:
    """Signs and names in one row above the axes, under the caption's line."""
    pixel = 1 / (float(axes.get_position().width) * sheet.width)
    height = 1 / (float(axes.get_position().height) * sheet.height)
    left, level = 4.0, 1 + 15 * height
    for name, position in names:
        signed_name(sheet, axes, (left * pixel, level), 11 * pixel, name, position)
        left += 11 + 0.58 * sheet.text * len(name) + 22
