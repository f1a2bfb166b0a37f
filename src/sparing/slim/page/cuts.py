"""What was cut: the chosen plan layer by layer, the survey that it comes from, and its control."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullFormatter

from sparing.core.record import Record
from sparing.report import wording
from sparing.report.blocks import Block
from sparing.report.figures.chart import Frame, chart
from sparing.report.figures.drawing import Plot, Sheet, no_plot
from sparing.report.figures.palette import marker
from sparing.report.run import Run
from sparing.report.sections import Bar, Section, Table, Text
from sparing.report.table import Column, table
from sparing.slim.page import lookups, prose
from sparing.slim.page.frontier import ring
from sparing.slim.page.lookups import Point, number_of, plan_of
from sparing.slim.page.wording import (
    NOT_DECIDED,
    chosen_name,
    chosen_text,
    divergence_text,
    divergence_unit,
    gap_text,
    labelless,
    per_cent,
    plan_words,
    score_name,
    speed_cell,
)
from sparing.slim.promise import promise_of

POSITIONS = {"uniform depth": 1, "early exits": 2, "random exits": 3}
KINDS = {"uniform depth": "depth", "early exits": "exits", "random exits": "random"}
LEAST = 1e-6  # of a divergence on the axis


def cuts_section(run: Run) -> Section:
    """The chosen plan in sentences and layer by layer."""
    parts = (Text(_words(run)), Table(_heads(run), _rows(run), style="plain layers"))
    return Section("cuts", "What was cut where", parts)


def _words(run: Run) -> str:
    record = lookups.chosen(run)
    if record is None:
        return prose("no-plan")
    plan, whole = plan_of(record), lookups.whole_plan(run)
    words = [
        prose(
            "plan",
            plan=plan_words(plan) + (f" of the dense model's {plan_words(whole)}" if whole else ""),
            share=wording.share(record.value or 0.0, 0),
            divergence=divergence_text(number_of(record, "divergence")),
            unit=divergence_unit(run),
        )
    ]
    expected = run.table.find("expected_cost")
    if expected is not None:
        cost = wording.share(expected.value or 0.0, 0)
        share = wording.share(number_of(expected, "epsilon"), 0)
        rule = "expected" if run.table.all("dense_rate") else "expected-plain"
        words.append(prose(rule, cost=cost, share=share))
    tuned = run.table.find("fixed_width_score", kind="depth", depth=plan.layers)
    if tuned is not None:
        words.append(prose("tuned", divergence=divergence_text(number_of(tuned, "divergence"))))
    words += [] if record.labels.get("reached") is True else [prose("not-reached")]
    return " ".join([*words, _exit_words(run)]).strip()


def _exit_words(run: Run) -> str:
    """Where the inputs of the served form exit, and on what that was counted."""
    exits, promise = _exits(run), promise_of(run.table)
    if promise is None or not (exits or promise.form.layers):
        return ""
    form = promise.form
    if form.layers:
        key = "cut-dense" if form.cascade else "cut"
        return prose(key, layers=form.layers, threshold=form.threshold)
    if len(exits) == 1:
        return prose("no-exits-dense" if form.cascade else "no-exits", threshold=form.threshold)
    counted = wording.count_of(next(iter(exits.values())).count, "test input")
    rest = prose("rest-dense" if form.cascade else "rest-slim")
    return prose("exits", threshold=form.threshold, rest=rest, inputs=counted)


def _heads(run: Run) -> tuple[str, ...]:
    heads = ("Layer", "Heads kept", "Neurons kept")
    if len(_exits(run)) < 2:
        return heads
    score = "Agreement" if labelless(run) else "Accuracy"
    return (*heads, "Inputs that run it", "Exit rate", f"{score}, of these")


def _rows(run: Run) -> list[tuple[str | Bar, ...]]:
    """A row for each layer of the dense model, also those that are never run."""
    record, whole = lookups.chosen(run), lookups.whole_plan(run)
    if record is None:
        return []
    plan, exits, staying = plan_of(record), _exits(run), 1.0
    rows: list[tuple[str | Bar, ...]] = []
    for number in range(1, max(plan.layers, whole.layers if whole else 0) + 1):
        if number > plan.layers:
            rows.append((str(number), "never run"))
            continue
        full = whole if whole and number <= whole.layers else None
        bars = [
            _width_bar(plan.heads[number - 1], full.heads[number - 1] if full else None),
            _width_bar(plan.neurons[number - 1], full.neurons[number - 1] if full else None),
        ]
        if len(exits) > 1:
            bars += _flow(exits.get(number), staying)
            staying -= _share(exits.get(number))
        rows.append((str(number), *bars))
    return rows


def _width_bar(count: int, whole: int | None) -> Bar:
    return Bar(f"{count:,}") if not whole else Bar(f"{count:,} of {whole:,}", count / whole)


def _flow(exits: Record | None, staying: float) -> list[Bar]:
    accuracy = exits.labels.get("accuracy") if exits else None
    share = _share(exits)
    right = wording.share(accuracy) if isinstance(accuracy, float) else wording.DASH
    return [Bar(wording.share(staying), staying), Bar(wording.share(share), share), Bar(right)]


def _share(exits: Record | None) -> float:
    return 0.0 if exits is None else float(exits.value or 0.0)


def _exits(run: Run) -> dict[int, Record]:
    """The exit rate of the served form after each layer; one layer where nothing exits early."""
    return {int(number_of(r, "layer")): r for r in run.table.all("exit_rate", split="test")}


def survey_plot(run: Run) -> Plot:
    """Divergence against FLOPs: fixed plans, early exits, and the control with random exits."""
    name, title = "survey", "The survey of plans"
    points = [point for point in lookups.surveyed(run) if point.cost_share <= 1]
    lines = {kind: nearest([p for p in points if p.kind == key]) for kind, key in KINDS.items()}
    lines = {kind: line for kind, line in lines.items() if line}
    if not lines:
        return no_plot(name, title, prose("no-survey"))

    def paint(sheet: Sheet, axes: Axes) -> None:
        axes.set_yscale("log")
        for kind, line in reversed(list(lines.items())):
            _draw(sheet, axes, kind, line)
        _draw_rest(sheet, axes, [p for p in points if p.kind == "depth"])
        record = lookups.chosen(run)
        if record is not None and record.value is not None:
            at = (100 * record.value, max(LEAST, number_of(record, "divergence")))
            ring(sheet, axes, *at)
            sheet.write(axes, "chosen", at, (10, 9), fontweight="bold", zorder=7)
        axes.xaxis.set_major_formatter("{x:g} %")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.locator_params(axis="x", nbins=5 if sheet.narrow else 9)

    frame = Frame("FLOPs, share of dense", "Divergence from dense, nats", 430, 340)
    return chart(name, title, prose("figure-survey"), list(lines), POSITIONS, frame, paint)


def nearest(points: Sequence[Point]) -> list[Point]:
    """The plans that no cheaper one equals in divergence from dense, cheapest first."""
    front: list[Point] = []
    for point in sorted(points, key=lambda point: (point.cost_share, point.divergence)):
        if not front or point.divergence < front[-1].divergence:
            front.append(point)
    return front


def _draw(sheet: Sheet, axes: Axes, kind: str, line: Sequence[Point]) -> None:
    """A front as steps: between two plans the divergence of the cheaper one holds."""
    axes.step(
        [100 * point.cost_share for point in line],
        [max(LEAST, point.divergence) for point in line],
        where="post",
        color=sheet.look.colour(POSITIONS[kind]),
        linewidth=2.0 if kind == "uniform depth" else 1.4,
        linestyle=(0, (2, 2)) if kind == "random exits" else "solid",
        marker=marker(POSITIONS[kind]),
        markersize=4.5 if sheet.narrow else 5.5,
        markeredgewidth=0,
        zorder=4 if kind == "uniform depth" else 3,
    )


def _draw_rest(sheet: Sheet, axes: Axes, points: Sequence[Point]) -> None:
    """The fixed plans that are not on their front, in grey."""
    front = nearest(points)
    rest = [point for point in points if point not in front]
    across = [100 * point.cost_share for point in rest]
    up = [max(LEAST, point.divergence) for point in rest]
    axes.plot(across, up, "o", color=sheet.look.muted, markersize=3.5, alpha=0.5, zorder=2)


def trials_block(run: Run) -> Block:
    """The plans that were timed during the choice."""
    trials = sorted(run.table.all("trial_speed"), key=lambda trial: number_of(trial, "cost_share"))
    record = lookups.chosen(run)
    taken = record.labels.get("plan") if record else None

    def plan(trial: Record) -> str:
        return plan_words(plan_of(trial)) + (" (chosen)" if trial.labels["plan"] == taken else "")

    columns = [
        Column("Plan", plan),
        Column[Record]("FLOPs", lambda t: wording.share(number_of(t, "cost_share"), 0)),
        Column("Divergence", lambda t: divergence_text(number_of(t, "divergence"))),
        Column(chosen_name(run), lambda t: chosen_text(run, number_of(t, "score"))),
        Column("Speed in float32", lambda t: speed_cell(run, t)),
    ]
    target = wording.factor(max(1.0, lookups.option(run, "speed", 2.0)))
    rule = "trials" if run.table.find("expected_cost") is None else "trials-expected"
    explain = prose(rule, target=target) if trials else prose("no-trials")
    return table("trials", "Plans timed in the choice", explain, trials, columns)


def static_blocks(run: Run) -> list[Block]:
    """The served form against the static pruned model, at every batch size, if it was trained."""
    fixed = run.table.find("static_plan")
    ratios = [run.table.find("static_speed_up", batch=batch) for batch in lookups.batches(run)]
    measured = [ratio for ratio in ratios if ratio is not None]
    if fixed is None or not measured:
        return []

    def gap(ratio: Record) -> Record | None:
        return run.table.find("static_difference", batch=ratio.labels["batch"])

    plan = plan_of(fixed)
    explain = prose("static", plan=plan_words(plan), cost=per_cent(round(fixed.value or 0.0, 3)))
    busy = run.table.disturbance(measured[0])
    verdict = NOT_DECIDED if busy else _static_verdict(measured[0], gap(measured[0]))
    columns = [
        Column[Record]("Batch", lambda ratio: str(ratio.labels["batch"])),
        Column("Served over static", lambda ratio: speed_cell(run, ratio)),
        Column(score_name(run), lambda ratio: gap_text(run, gap(ratio))),
    ]
    title = f"The static pruned model: {verdict}"
    return [table("static", title, explain, measured, columns)]


def _static_verdict(ratio: Record, gap: Record | None) -> str:
    """Whether the served form beats the static pruned model at the first batch size."""
    faster, better = _sign(ratio, 1.0), _sign(gap, 0.0)
    if not faster and not better:
        return "no clear difference"
    if faster >= 0 and better >= 0:
        return "the served form is better"
    if faster <= 0 and better <= 0:
        return "the static model is better"
    return "one is faster, the other more accurate"


def _sign(record: Record | None, even: float) -> int:
    """The side of ``even`` that the whole interval is on; 0 where the interval holds it."""
    low, high = (record.interval if record else None) or (even, even)
    return 1 if low > even else -1 if high < even else 0
