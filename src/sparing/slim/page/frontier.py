"""The certified frontier as a table, and all tested forms in a figure: speed against changes."""

from __future__ import annotations

from matplotlib.axes import Axes

from sparing.core.record import Record
from sparing.report import wording
from sparing.report.blocks import Block
from sparing.report.estimates import NONE
from sparing.report.figures.chart import Frame, Mark, chart, draw_mark, interval_of, label_axes
from sparing.report.figures.drawing import Plot, Sheet, name_points, no_plot
from sparing.report.run import Run
from sparing.report.table import Column, table
from sparing.slim.evidence.candidates import Candidate
from sparing.slim.page import lookups, prose
from sparing.slim.page.forms import class_name, position
from sparing.slim.page.wording import (
    labelless,
    per_cent,
    score_name,
    score_text,
    speed_cell,
    speed_text,
)
from sparing.slim.promise import engine_name, form_name, form_of, promise_of

ROOM = 0.06
MOST = 2.5  # times the largest certified share, beyond which forms are left out of the figure


def frontier_block(run: Run) -> Block:
    """A row for each share of changed answers: the form that is certified for it."""
    points = run.table.matching("certified_speed", {})
    points.sort(key=lambda point: lookups.number_of(point, "epsilon"))
    title = "The certified frontier"
    if not points:
        return Block("certified", title, prose("no-certified"))
    sure = per_cent(1 - lookups.number_of(points[0], "delta"))
    key = "certified" if len(points) > 1 else "certified-one"
    explain = prose(key, sure=sure, count=points[0].count)
    return table("certified", title, explain, points, _columns(run))


def _columns(run: Run) -> list[Column[Record]]:
    promise = promise_of(run.table)

    def share(point: Record) -> str:
        served = (
            promise is not None
            and point.value is not None
            and (form_of(point) == promise.form and point.labels["epsilon"] == promise.epsilon)
        )
        return per_cent(lookups.number_of(point, "epsilon")) + (" (served)" if served else "")

    def form(point: Record) -> str:
        return prose("none-certified") if point.value is None else form_name(form_of(point))

    def changed(point: Record) -> str:
        if point.value is None:
            return NONE
        return f"{lookups.number_of(point, 'changed'):,.0f} of {point.count:,}"

    columns = [
        Column("Answers changed, at most", share),
        Column("Form", form),
        Column[Record](
            "Speed where chosen", lambda p: speed_text(p.value, None) if p.value else NONE
        ),
        Column("Changed in calibration", changed),
        *(_speed_column(run, batch) for batch in lookups.batches(run)),
        Column("Agreement on test", lambda point: _tested(run, point, "agreement")),
    ]
    if not labelless(run):
        name = score_name(run)
        columns.append(Column(name, lambda point: _tested(run, point, "whole_score", primary=True)))
    return columns


def _speed_column(run: Run, batch: int) -> Column[Record]:
    """The speed of each point's form on test inputs."""

    def cell(point: Record) -> str:
        if point.value is None:
            return NONE
        form = form_of(point)
        if form == lookups.baseline(run, batch):
            return "baseline"
        return speed_cell(run, lookups.speed_up(run, form, batch))

    return Column(f"Speed on test, batch {batch}", cell)


def _tested(run: Run, point: Record, name: str, **more: bool) -> str:
    """A number of a point's form on the whole test split."""
    if point.value is None:
        return NONE
    value = run.table.value(name, **form_of(point).labels, **more)
    if value is None:
        return NONE
    return wording.share(value, 2) if name == "agreement" else score_text(run, value)


def frontier_plot(run: Run) -> Plot:
    """Speed against the share of changed answers, on test inputs; a ring is a certified form."""
    name, title = "frontier", "Speed and changed answers on test"
    batch = lookups.batches(run)[0]
    marks = {form: mark for form in lookups.forms(run) if (mark := _mark(run, form, batch))}
    if not marks:
        return no_plot(name, title, prose("no-frontier"))
    certified = _shares(run)
    most = 100 * MOST * max([*lookups.certified(run), 0.02])
    known = {form: mark for form, mark in marks.items() if mark.x <= most or form in certified}
    words = prose("figure-frontier", batch=batch)
    if any(map(run.table.disturbance, run.table.all("speed_up", batch=batch))):
        words += f" {prose('figure-frontier-busy')}"
    if len(known) < len(marks):
        hidden = wording.count_of(len(marks) - len(known), "form")
        words += f" {prose('figure-frontier-hidden', forms=hidden, most=f'{most:g} %')}"

    def paint(sheet: Sheet, axes: Axes) -> None:
        _set_limits(run, axes, known)
        sheet.level(axes, 1.0, "", 5)
        promise = promise_of(run.table)
        if promise is not None:
            at = 100 * promise.epsilon
            axes.axvline(at, color=sheet.look.muted, lw=1, linestyle=(0, (4, 4)), zorder=1)
        for form, mark in known.items():
            draw_mark(sheet, axes, position(form), mark)
            if form in certified:
                ring(sheet, axes, mark.x, mark.y)
        label_axes(axes, "{x:g} %", f"{{x:g}}{wording.TIMES}", 5 if sheet.narrow else 9, 6)
        ordered = sorted(known, key=lambda form: (form not in certified, -known[form].y))
        named = [(known[f].x, known[f].y, _label(f, certified, sheet.narrow)) for f in ordered]
        name_points(sheet, axes, named, 10.0)

    names = list(dict.fromkeys(map(class_name, known)))
    by_name = {class_name(form): position(form) for form in known}
    frame = Frame("answers changed on test inputs", "Speed, fastest dense float32 = 1", 480, 380)
    return chart(name, title, words, names, by_name, frame, paint)


def _mark(run: Run, form: Candidate, batch: int) -> Mark | None:
    """A form in the figure; None where it was not timed or not scored."""
    same = run.table.value("agreement", **form.labels)
    speed = lookups.speed_up(run, form, batch)
    if same is None or (speed is None and form != lookups.baseline(run, batch)):
        return None
    changed = 100 * (1 - same)
    if speed is None or speed.value is None:
        return Mark(changed, 1.0)
    return Mark(changed, speed.value, y_interval=interval_of(speed))


def _shares(run: Run) -> dict[Candidate, list[float]]:
    """The shares that each form of the frontier is certified for."""
    shares: dict[Candidate, list[float]] = {}
    for epsilon, form in lookups.certified(run).items():
        if form is not None:
            shares.setdefault(form, []).append(epsilon)
    return shares


def _label(form: Candidate, certified: dict[Candidate, list[float]], narrow: bool) -> str:
    """Its engine and the shares that it is certified for; where there is little room only one."""
    shares = wording.listing([f"{100 * share:g}" for share in certified.get(form, [])], 9)
    if shares and narrow:
        return f"{shares} %"
    return f"{engine_name(form)}, at most {shares} %" if shares else engine_name(form)


def _set_limits(run: Run, axes: Axes, marks: dict[Candidate, Mark]) -> None:
    promise = promise_of(run.table)
    across = [0.0, *(mark.x for mark in marks.values())]
    across += [100 * promise.epsilon] if promise else []
    up = [end for mark in marks.values() for end in (mark.y, *(mark.y_interval or ()))]
    room = ROOM * ((max(across) - min(across)) or 1.0)
    axes.set_xlim(-room, max(across) + 2 * room)
    axes.set_ylim(0, (1 + ROOM) * min(max([1.0, *up]), 1.5 * max(m.y for m in marks.values())))


def ring(sheet: Sheet, axes: Axes, x: float, y: float) -> None:
    """A ring around a mark."""
    axes.plot(
        [x],
        [y],
        marker="o",
        markersize=12 if sheet.narrow else 15,
        markerfacecolor="none",
        markeredgecolor=sheet.look.ink,
        markeredgewidth=1.8,
        linestyle="none",
        zorder=6,
    )
