"""Measured times: of the plans tried during the choice, and of the frontier on test inputs."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes

from sparing.core.record import Record
from sparing.report import wording
from sparing.report.blocks import Block
from sparing.report.figures.chart import Frame, Mark, chart, draw_mark, interval_of, label_axes
from sparing.report.figures.drawing import Plot, Sheet, name_points, no_plot
from sparing.report.figures.palette import marker
from sparing.report.run import Run
from sparing.report.table import Column, table
from sparing.slim.page import lookups, prose
from sparing.slim.page.figures import EXITS, POSITIONS, TOWARDS, floor_line, ring
from sparing.slim.page.lookups import DENSE, cost_of, number_of, plan_of
from sparing.slim.page.wording import (
    per_cent,
    plan_words,
    range_of,
    scale_of,
    score_name,
    speed_columns,
    times,
)

ROOM = 0.07
FASTER = "speed, dense = 1 (faster \N{RIGHTWARDS ARROW})"


def measured(run: Run) -> list[tuple[Record, Record]]:
    """Plans measured on test inputs, and the served one: speed, and difference of scores.

    Both are to the fastest dense form; the slowest comes first.
    """
    speeds = run.table.all("front_speed_up")
    pairs = [(speed, _difference(run, speed)) for speed in speeds]
    served = lookups.fastest(run)
    if served is not None and pairs:
        labels = {name: served.labels.get(name) for name in ("arm", "batch", "engine")}
        pairs.append((served, run.table.find("score_difference", **labels)))
    known = [(speed, gap) for speed, gap in pairs if gap is not None]
    return sorted(known, key=lambda pair: pair[0].value or 0.0)


def _difference(run: Run, speed: Record) -> Record | None:
    return run.table.find("front_difference", plan=speed.labels.get("plan"))


def _is_served(speed: Record) -> bool:
    return speed.name == "speed_up"


def measured_block(run: Run) -> list[Block]:
    """The plans of the frontier that were measured, as a table."""
    pairs = [pair for pair in measured(run) if not _is_served(pair[0])]
    if not pairs:
        return []
    scale = scale_of(run)

    def score(speed: Record) -> str:
        value = run.table.value("front_score", plan=speed.labels["plan"])
        return "not measured" if value is None else scale.text(value)

    def difference(speed: Record) -> str:
        gap = _difference(run, speed)
        return scale.gap(gap) if gap else ""

    columns = [
        Column("Plan", _plan_words),
        Column("FLOPs", lambda speed: per_cent(cost_of(speed))),
        *speed_columns(run),
        Column(score_name(run).capitalize(), score),
        Column("Difference", difference),
    ]
    explain = prose("measured", inputs=wording.count_of(pairs[0][1].count, "test input"))
    speeds = [speed for speed, _ in pairs]
    return [table("measured", "The frontier in time", explain, speeds, columns)]


def _plan_words(speed: Record) -> str:
    plan = plan_of(speed)
    sizes = f"{range_of(plan.heads)} heads and {range_of(plan.neurons)} neurons"
    return f"{sizes}; {plan_words(plan)}"


def measured_plot(run: Run) -> Plot:
    """Score difference against speed, both on test inputs and with intervals."""
    name, title, pairs = "measured", "The frontier in time", measured(run)
    if not pairs:
        return no_plot(name, title, prose("no-measured"))
    scale = scale_of(run)
    allowed = -(1 - lookups.floor(run)) * (run.table.value("score", arm=DENSE) or 0.0)
    least = min(10 * allowed, -0.02)  # larger losses would compress the rest of the axis
    shown = [(s, gap) for s, gap in pairs if _is_served(s) or (gap.value or 0.0) >= least]
    description = prose("figure-measured", score=score_name(run))
    if len(shown) < len(pairs):
        hidden = wording.count_of(len(pairs) - len(shown), "plan")
        description += f" {prose('figure-measured-hidden', plans=hidden)}"

    def paint(sheet: Sheet, axes: Axes) -> None:
        marks = [_mark(speed, gap, scale.factor) for speed, gap in shown]
        across = [1.0, *(end for mark in marks for end in mark.x_interval or (mark.x,))]
        up = [0.0, scale.factor * allowed]
        up += [end for mark in marks for end in mark.y_interval or (mark.y,)]
        axes.set_xlim(*_limits(across))
        axes.set_ylim(*_limits(up))
        axes.axhline(0, color=sheet.look.muted, linewidth=1, zorder=1)
        floor_line(run, sheet, axes, scale.factor * allowed)
        axes.plot([1], [0], marker=marker(0), markersize=9, color=sheet.look.ink, mew=0, zorder=5)
        for (speed, _), mark in zip(shown, marks, strict=True):
            draw_mark(sheet, axes, POSITIONS[EXITS], mark)
            if _is_served(speed):
                ring(sheet, axes, mark.x, mark.y)
        label_axes(axes, f"{{x:g}}{wording.TIMES}", "{x:g}", 5 if sheet.narrow else 9, 6)
        axes.yaxis.set_major_formatter(lambda value, _: _signed(value))

    caption = (
        f"{score_name(run).capitalize()}, difference to dense{', points' if scale.shares else ''}"
    )
    margins, narrow = (58, 38, 18, 48), (44, 38, 18, 48)
    frame = Frame(FASTER, caption, 400, 320, margins=margins, narrow_margins=narrow)
    return chart(name, title, description, [], {}, frame, paint)


def _mark(speed: Record, gap: Record, factor: float) -> Mark:
    x, y = speed.value or 0.0, factor * (gap.value or 0.0)
    return Mark(x, y, interval_of(speed), interval_of(gap, factor))


def _limits(values: Sequence[float]) -> tuple[float, float]:
    room = ROOM * ((max(values) - min(values)) or 1.0)
    return min(values) - room, max(values) + room


def _signed(value: float) -> str:
    return f"{value:+g}".replace("-", wording.MINUS) if value else "0"


def trials_plot(run: Run) -> Plot:
    """Measured speed against FLOPs, for the plans that were timed during the choice."""
    name, title, trials = "trials", "Speed of the plans tried", lookups.trials(run)
    if not trials:
        return no_plot(name, title, prose("no-trials"))
    target, chosen, dense = lookups.target(run), lookups.taken(run), lookups.dense_score(run)
    marks = [Mark(100 * cost_of(t), t.value or 0.0, y_interval=t.interval) for t in trials]

    def paint(sheet: Sheet, axes: Axes) -> None:
        costs = [mark.x for mark in marks]
        left, right = min(costs), max([*costs, 100.0])
        axes.set_xlim(left - 0.1 * (right - left), right + 0.06 * (right - left))
        axes.set_ylim(0, _top(target, marks))
        steps = (left + step * (right - left) / 60 for step in range(61))
        shares = [share for share in steps if share > 0]
        proportional = [100 / share for share in shares]
        axes.plot(shares, proportional, color=sheet.look.muted, alpha=0.6, lw=1)
        sheet.level(axes, target, f"target {times(target)}", 5)
        for trial, mark in zip(trials, marks, strict=True):
            draw_mark(sheet, axes, POSITIONS[EXITS], mark)
            if chosen is not None and chosen.value == cost_of(trial):
                ring(sheet, axes, mark.x, mark.y)
        label_axes(axes, "{x:g} %", f"{{x:g}}{wording.TIMES}", 5, 6)
        if dense:
            kept_shares = [wording.share(number_of(trial, "score") / dense) for trial in trials]
            named = [
                (mark.x, mark.y, share) for mark, share in zip(marks, kept_shares, strict=True)
            ]
            name_points(sheet, axes, named, 10.0)

    margins, narrow = (48, 38, 18, 48), (40, 38, 18, 48)
    frame = Frame(TOWARDS, "Speed, dense = 1", 400, 320, 520, margins, narrow)
    return chart(name, title, prose("figure-trials"), [], {}, frame, paint)


def _top(target: float, marks: Sequence[Mark]) -> float:
    """Where the axis of speeds ends: intervals far above every value are cut."""
    highest = max([target, 1.0, *(mark.y for mark in marks)])
    ends = [mark.y_interval[1] for mark in marks if mark.y_interval]
    return 1.08 * min(max([highest, *ends]), 1.5 * highest)
