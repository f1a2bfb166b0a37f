"""Each layer's heads and neurons that are kept, and the exit rate after it."""

from __future__ import annotations

from sparing.core.record import Record
from sparing.layers.plan import Plan
from sparing.report import wording
from sparing.report.blocks import Block
from sparing.report.run import Run
from sparing.report.sections import Bar
from sparing.report.table import Column, table
from sparing.slim.page import lookups, prose
from sparing.slim.page.lookups import DENSE, Point, number_of, plan_of
from sparing.slim.page.wording import (
    plan_words,
    range_of,
    record_speed,
    scale_of,
    small_share,
    speed_interval,
    token_words,
    width_name,
)


def cut_heads(run: Run) -> tuple[str, ...]:
    """The columns of ``cut_rows``."""
    heads = ("Layer", "Heads kept", "Neurons kept", "Exits after it")
    flow = ("Inputs that run it", "Exit rate", "Accuracy, of these")
    return (*heads, *flow) if _early_exits(run) else heads


def cut_rows(run: Run) -> list[tuple[str | Bar, ...]]:
    """A row for each layer of the dense model, also those that are never run."""
    plan, whole = lookups.final_plan(run), lookups.whole_plan(run)
    if plan is None:
        return []
    exits, staying = _early_exits(run), 1.0
    rows: list[tuple[str | Bar, ...]] = []
    for number in range(1, max(plan.layers, whole.layers if whole else 0) + 1):
        if number > plan.layers:
            rows.append((str(number), "never run"))
            continue
        bars = _kept_bars(plan, whole, number)
        if exits:
            bars += _flow_bars(exits.get(number), staying)
            staying -= _share(exits.get(number))
        rows.append((str(number), *bars))
    return rows


def cut_words(run: Run) -> str:
    """The plan in sentences, and the inputs on which exit rates were counted."""
    exits = list(_early_exits(run).values())
    counted = ""
    if exits:
        inputs = wording.count_of(exits[0].count, f"{exits[0].labels.get('split')} input")
        counted = prose("counted", inputs=inputs)
    return " ".join([*_plan_sentences(run), counted])


def _plan_sentences(run: Run) -> list[str]:
    plan = lookups.final_plan(run)
    if plan is None:
        return [prose("no-plan")]
    sentences = [
        _size_sentence(plan, lookups.whole_plan(run)),
        exit_sentence(plan, int(run.config["task"].get("classes") or 0)),
        token_words(plan),
    ]
    point = lookups.point_of(run, plan)
    if point is not None:
        share, layers = wording.share(point.cost_share, 0), wording.trimmed(point.mean_layers)
        sentences.append(prose("runs", layers=layers, share=share))
    sentences += [_built_on(run), _raised(run, plan)]
    return [sentence for sentence in sentences if sentence]


def _size_sentence(plan: Plan, whole: Plan | None) -> str:
    """Heads, neurons and layers that are left."""
    deep = f" of {whole.layers}" if whole and whole.layers > plan.layers else ""
    layers = f"{plan.layers}{deep} {'layer' if plan.layers == 1 else 'layers'}"
    if whole and (plan.heads, plan.neurons) == (
        whole.heads[: plan.layers],
        whole.neurons[: plan.layers],
    ):
        return prose("keeps-all", layers=layers)
    heads, neurons = range_of(plan.heads), range_of(plan.neurons)
    if whole:
        heads += f" of {range_of(whole.heads)}"
        neurons += f" of {range_of(whole.neurons)}"
    return prose("keeps-some", heads=heads, neurons=neurons, layers=layers)


def exit_sentence(plan: Plan, classes: int) -> str:
    """After which layers inputs exit; ``classes`` of 0 are not known."""
    if not plan.stops:
        return "There are no early exits."
    if classes and plan.lets_all_leave(classes):
        return prose("all-leave", layer=plan.stops[0])
    layers = wording.listing([str(stop) for stop in plan.stops], 9).replace(" and ", " or ")
    softmax = plan.confidence == "softmax"
    sure = "its largest class probability there" if softmax else "its learned confidence"
    return prose("leave", layers=layers, sure=sure, threshold=plan.threshold)


def _built_on(run: Run) -> str:
    """The effect of fine-tuning at fixed width on the score where plans were chosen."""
    first, last = lookups.chosen(run), lookups.handed_on(run)
    if first is None or last is None or last is first:
        return ""
    scale, kind = scale_of(run), last.labels.get("attempt", "chosen")
    before, after = (scale.text(float(record.labels["score"] or 0.0)) for record in (first, last))
    spent, cost = (wording.share(float(record.value or 0.0), 0) for record in (first, last))
    known = kind if kind in ("chosen", "shallow", "alone") else "fallback"
    values = {"before": before, "after": after, "spent": spent, "cost": cost}
    return prose(f"built-{known}", layers=plan_of(first).layers, **values)


def _raised(run: Run, plan: Plan) -> str:
    """The threshold before and after calibration, if it changed."""
    record = lookups.handed_on(run)
    before = plan_of(record).threshold if record else plan.threshold
    same = before == plan.threshold
    return "" if same else prose("raised", before=before, after=plan.threshold)


def _kept_bars(plan: Plan, whole: Plan | None, number: int) -> tuple[Bar, ...]:
    index = number - 1
    known = whole if whole and index < whole.layers else None  # records may have been lost
    return (
        _kept(plan.heads[index], known.heads[index] if known else None),
        _kept(plan.neurons[index], known.neurons[index] if known else None),
        Bar(_exit_rule(plan, number)),
    )


def _kept(count: int, whole: int | None) -> Bar:
    if whole is None:
        return Bar(f"{count:,}")
    return Bar(f"{count:,} of {whole:,}", count / whole)


def _flow_bars(exits: Record | None, staying: float) -> tuple[Bar, ...]:
    accuracy = exits.labels.get("accuracy") if exits else None
    share = _share(exits)
    return (
        Bar(wording.share(staying), staying),
        Bar(small_share(share), share),
        Bar(wording.share(accuracy) if isinstance(accuracy, float) else wording.DASH),
    )


def _exit_rule(plan: Plan, number: int) -> str:
    if number == plan.layers:
        return "all remaining" if plan.stops else "all"
    return f"confidence above {plan.threshold:g}" if number in plan.stops else "none"


def _early_exits(run: Run) -> dict[int, Record]:
    """The exit rate after each layer, on the test split or else on the last one recorded."""
    records = run.table.all("exit_rate")
    splits = [record.labels.get("split") for record in records]
    split = "test" if "test" in splits else splits[-1] if splits else None
    chosen = (record for record in records if record.labels.get("split") == split)
    return {int(number_of(record, "layer")): record for record in chosen}


def _share(exits: Record | None) -> float:
    return 0.0 if exits is None else float(exits.value or 0.0)


def front_block(run: Run) -> Block:
    """The frontier as a table: every plan that no other beats, with its time where it was timed."""
    scale, dense = scale_of(run), lookups.dense_score(run) or 0.0
    timed = {lookups.cost_of(trial): trial for trial in lookups.trials(run)}
    front = [point for point in lookups.surveyed(run) if point.on_front]

    def speed(point: Point) -> str:
        trial = timed.get(point.cost_share)
        if trial is None:
            return "not timed"
        words = record_speed(run, trial)
        return (
            words if run.table.disturbance(trial) else f"{words}, {speed_interval(trial.interval)}"
        )

    columns = [
        Column[Point]("FLOPs", lambda point: wording.share(point.cost_share, 0)),
        Column("Score", lambda point: scale.text(point.score)),
        Column(f"Of {DENSE}", lambda p: wording.share(p.score / dense) if dense else "unknown"),
        Column("Layers, mean", lambda point: wording.trimmed(point.mean_layers)),
        Column("Width", lambda point: width_name(point.width)),
        Column("Exits", lambda point: plan_words(point.plan)),
        Column("Timed", speed),
    ]
    front.sort(key=lambda point: point.cost_share)
    return table("front", "The frontier as a table", "", front, columns)
