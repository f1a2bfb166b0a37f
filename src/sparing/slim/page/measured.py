"""The frontier as the clock and the test split saw it: speed and score of some of its plans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from sparing.core.record import Label, Record
from sparing.layers.plan import Plan
from sparing.report import wording
from sparing.report.blocks import Block
from sparing.report.figures.drawing import Plot, Sheet
from sparing.report.figures.palette import Look, marker
from sparing.slim.page.figures import EXITS, POSITIONS, floor_line, ring
from sparing.slim.page.results import DENSE, OURS, SlimResults, number_of, plan_of
from sparing.slim.page.wording import (
    per_cent,
    plan_words,
    range_of,
    record_speed,
    scale_of,
    score_name,
    speed_interval,
)

_ROOM = 0.07


@dataclass(frozen=True)
class Measured:
    """A plan's speed over the fastest dense form, and its score's difference to that form's."""

    speed: Record
    gap: Record
    chosen: bool = False

    @property
    def ends(self) -> tuple[float, float, float, float]:
        """The intervals: from and to in speed, from and to in score."""
        speed, gap = (record.interval or (record.value or 0.0,) * 2 for record in self.pair)
        return (*speed, *gap)

    @property
    def pair(self) -> tuple[Record, Record]:
        """Speed, and difference."""
        return self.speed, self.gap


def measured(results: SlimResults) -> list[Measured]:
    """The plans that were measured, slowest first; the one that is served is marked."""
    gaps = results.all.all("front_difference")
    found = [
        Measured(speed, gap)
        for speed, gap in zip(results.all.all("front_speed_up"), gaps, strict=False)
    ]
    served = _served(results)
    if served is not None and found:
        found.append(served)
    return sorted(found, key=lambda each: each.speed.value or 0.0)


def _served(results: SlimResults) -> Measured | None:
    """Ours in its fastest engine at the first batch size."""
    batch = results.batches[0]
    speeds = results.all.all("speed_up", arm=OURS, batch=batch)
    best = max(speeds, key=lambda record: record.value or 0.0, default=None)
    if best is None:
        return None
    labels: dict[str, Label] = {"arm": OURS, "batch": batch, "engine": best.labels.get("engine")}
    gap = results.all.find("score_difference", **labels)
    return Measured(best, gap, chosen=True) if gap else None


def measured_block(results: SlimResults) -> list[Block]:
    """The same as a table."""
    plans = [each for each in measured(results) if not each.chosen]
    if not plans:
        return []
    scale = scale_of(results)
    rows = []
    for each in plans:
        score = results.all.find("front_score", plan=each.speed.labels["plan"])
        value, interval = each.gap.value or 0.0, each.gap.interval
        told = scale.difference(value, interval)
        rows.append(
            (
                _words(plan_of(each.speed)),
                per_cent(number_of(each.speed, "cost_share")),
                record_speed(results, each.speed),
                speed_interval(each.speed.interval),
                scale.text(score.value or 0.0) if score else "not measured",
                f"{told} ({scale.interval(value, interval)})" if interval else told,
            )
        )
    explain = (
        f"Plans of the frontier on {wording.count_of(plans[0].gap.count, 'test input')}, one at a "
        "time, before any was polished. Speed is over the fastest dense form, with its 95 % "
        "interval over inputs; differences have their 90 % interval."
    )
    heads = ("Plan", "Arithmetic", "Speed", "Interval", score_name(results).capitalize())
    return [Block("measured", "The frontier in time", explain, (*heads, "Difference"), tuple(rows))]


def _words(plan: Plan) -> str:
    sizes = f"{range_of(plan.heads)} heads and {range_of(plan.neurons)} neurons"
    return f"{sizes}; {plan_words(plan)}"


def measured_plot(results: SlimResults) -> Plot:
    """Score difference against speed, both on test inputs and with intervals."""
    title = "The frontier in time"
    every = measured(results)
    if not every:
        return Plot("measured", title, "", None, missing="No plan was measured on test inputs.")
    plans = [each for each in every if each.chosen or (each.gap.value or 0.0) >= _lowest(results)]
    description = (
        f"What plans of the frontier lose in {score_name(results)} against how fast they are, both "
        "beside the fastest dense form on the same test inputs one at a time; up and to the right "
        "is better. Bars are 95 % intervals of speed and 90 % intervals of the difference. The "
        "ring is the slim model as it was saved; the others are not polished."
    )
    if len(plans) < len(every):
        hidden = wording.count_of(len(every) - len(plans), "plan")
        description += f" Not shown: {hidden} far below, which the table holds."

    def draw(look: Look, narrow: bool) -> Figure:
        sheet = Sheet(350, 320, look, True) if narrow else Sheet(1060, 400, look)
        return _draw(results, sheet, plans)

    return Plot("measured", title, description, draw)


def _draw(results: SlimResults, sheet: Sheet, plans: Sequence[Measured]) -> Figure:
    scale = scale_of(results)
    figure = sheet.figure()
    axes = sheet.axes(figure, 44 if sheet.narrow else 58, 38, 18, 48)
    ends = [each.ends for each in plans]
    factor = scale.factor
    highs, lows = [factor * end[3] for end in ends], [factor * end[2] for end in ends]
    floor = factor * _floor(results)
    _limits(axes, [1.0, *(e[0] for e in ends), *(e[1] for e in ends)], [0.0, floor, *lows, *highs])
    axes.axhline(0, color=sheet.look.muted, linewidth=1, zorder=1)
    floor_line(results, sheet, axes, floor)
    axes.plot([1], [0], marker=marker(0), markersize=9, color=sheet.look.ink, mew=0, zorder=5)
    for each in plans:
        _draw_one(sheet, axes, each, factor)
    sign = " points" if scale.shares and not sheet.narrow else ""
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}{wording.TIMES}"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _signed(value)))
    axes.locator_params(axis="x", nbins=5 if sheet.narrow else 9)
    axes.locator_params(axis="y", nbins=6)
    sheet.caption(axes, f"{score_name(results).capitalize()} beside dense{sign and ',' + sign}")
    towards = "speed, dense = 1 (faster \N{RIGHTWARDS ARROW})"
    axes.set_xlabel(towards, fontsize=sheet.text, color=sheet.look.muted, labelpad=6)
    return figure


def _floor(results: SlimResults) -> float:
    """The loss that the floor allows, below 0."""
    return -(1 - results.floor) * (results.all.value("score", arm=DENSE) or 0.0)


def _lowest(results: SlimResults) -> float:
    """What loses more would squeeze the rest: ten floors, two points at least."""
    return min(10 * _floor(results), -0.02)


def _signed(value: float) -> str:
    return f"{value:+g}".replace("-", wording.MINUS) if value else "0"


def _limits(axes: Axes, across: Sequence[float], up: Sequence[float]) -> None:
    for setting, values in ((axes.set_xlim, across), (axes.set_ylim, up)):
        low, high = min(values), max(values)
        room = _ROOM * ((high - low) or 1.0)
        setting(low - room, high + room)


def _draw_one(sheet: Sheet, axes: Axes, each: Measured, factor: float) -> None:
    colour = sheet.look.colour(POSITIONS[EXITS])
    x, y = each.speed.value or 0.0, factor * (each.gap.value or 0.0)
    left, right, low, high = each.ends
    axes.vlines(x, factor * low, factor * high, color=colour, linewidth=1.6, alpha=0.5)
    axes.hlines(y, left, right, color=colour, linewidth=1.6, alpha=0.5)
    axes.plot([x], [y], marker=marker(POSITIONS[EXITS]), markersize=8, color=colour, mew=0)
    if each.chosen:
        ring(sheet, axes, x, y)
