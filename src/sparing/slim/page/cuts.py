"""What was cut where: each layer's heads and neurons, and how many inputs leave after it."""

from __future__ import annotations

from dataclasses import dataclass

from sparing.core.record import Record
from sparing.layers.plan import Plan
from sparing.report import wording
from sparing.report.blocks import Block
from sparing.report.sections import Bar
from sparing.slim.page.results import DENSE, SlimResults, Trial, number_of, plan_of
from sparing.slim.page.wording import (
    NOT_DECIDED,
    plan_words,
    range_of,
    scale_of,
    small_share,
    speed_interval,
    speed_text,
    token_words,
    width_name,
)


@dataclass(frozen=True)
class Layer:
    """One layer of the dense model; ``bars`` belong to ``cut_heads``, none where it is not run."""

    number: int
    bars: tuple[Bar, ...]


def cut_heads(results: SlimResults) -> tuple[str, ...]:
    """The columns of ``cut_layers``."""
    heads = ("Heads kept", "Neurons kept", "Who leaves after it")
    if not _leavers(results):
        return heads
    return (*heads, "Inputs that run it", "Leave after it", "Right, of these")


def cut_layers(results: SlimResults) -> list[Layer]:
    """One entry a layer of the dense model, those that are never run included."""
    plan, whole = results.final_plan, results.whole
    if plan is None:
        return []
    depth = max(plan.layers, whole.layers if whole else 0)
    leavers, staying = _leavers(results), 1.0
    found = []
    for number in range(1, depth + 1):
        if number > plan.layers:
            found.append(Layer(number, ()))
            continue
        bars = _kept_bars(plan, whole, number)
        if leavers:
            bars += _flow_bars(leavers.get(number), staying)
            staying -= _share(leavers.get(number))
        found.append(Layer(number, bars))
    return found


def cut_words(results: SlimResults) -> list[str]:
    """The plan in sentences."""
    plan, whole = results.final_plan, results.whole
    if plan is None:
        return ["No plan was chosen in this run so far."]
    sentences = [
        _size_sentence(plan, whole),
        exit_sentence(plan, int(results.run.config["task"].get("classes") or 0)),
        token_words(plan),
    ]
    point = results.point_of(plan)
    if point is not None:
        share = wording.share(point.cost_share, 0)
        sentences.append(
            f"On the inputs it was chosen on, an input runs {wording.trimmed(point.mean_layers)} "
            f"layers on average: {share} of the dense model's arithmetic."
        )
    sentences += [_polished(results), _raised(results, plan)]
    return [sentence for sentence in sentences if sentence]


def _size_sentence(plan: Plan, whole: Plan | None) -> str:
    """Heads, neurons and layers that are left."""
    deep = f" of {whole.layers}" if whole and whole.layers > plan.layers else ""
    layers = f"{plan.layers}{deep} {'layer' if plan.layers == 1 else 'layers'}"
    if whole and plan.heads + plan.neurons == _sizes(whole, plan.layers):
        return f"The slim model keeps all heads and neurons in each of {layers}."
    return (
        f"The slim model keeps {range_of(plan.heads)}{_of(whole, 'heads')} heads and "
        f"{range_of(plan.neurons)}{_of(whole, 'neurons')} neurons in each of {layers}: those that "
        "matter most, in smaller matrices."
    )


def _sizes(whole: Plan, layers: int) -> tuple[int, ...]:
    return whole.heads[:layers] + whole.neurons[:layers]


def _of(whole: Plan | None, name: str) -> str:
    return f" of {range_of(getattr(whole, name))}" if whole else ""


def exit_sentence(plan: Plan, classes: int) -> str:
    """After which layers inputs leave; ``classes`` of 0 are not known."""
    if not plan.stops:
        return "No input leaves early."
    if classes and plan.lets_all_leave(classes):
        return f"All inputs but exact ties leave after layer {plan.stops[0]}."
    places = wording.listing([str(stop) for stop in plan.stops], 9).replace(" and ", " or ")
    softmax = plan.confidence == "softmax"
    sure = "its largest class probability there" if softmax else "the confidence learned for it"
    return f"An input leaves after layer {places} as soon as {sure} is above {plan.threshold:g}."


def _polished(results: SlimResults) -> str:
    """What training the chosen plan on did where it was chosen."""
    before, after = results.chosen, results.served
    if before is None or after is None or after is before:
        return ""
    scale = scale_of(results)
    scores = [scale.text(float(record.labels["score"] or 0.0)) for record in (before, after)]
    kind = after.labels.get("attempt", "chosen")
    if kind == "chosen":
        return (
            "Then its own small model was trained on, which took its score there from "
            f"{scores[0]} to {scores[1]} at no more arithmetic."
        )
    spent = wording.share(float(before.value or 0.0), 0)
    if kind == "shallow":
        return (
            "It is shallower than the plan chosen from the frontier, which keeps "
            f"{plan_of(before).layers} layers and {scores[0]} at {spent} of the arithmetic: cut "
            f"from the same model and trained on by itself it has {scores[1]} there."
        )
    if kind == "alone":
        cost = wording.share(float(after.value or 0.0), 0)
        return (
            f"It is the fixed control: {scores[1]} there at {cost} of the arithmetic, distilled "
            "alone from the dense model. What was cut from the model of all widths was not better."
        )
    return (
        f"A plan of {spent} of the arithmetic was fast enough, but not good enough, trained on or "
        f"not; this one has {scores[1]} there, trained on by itself."
    )


def _raised(results: SlimResults, plan: Plan) -> str:
    """Where calibration put another threshold than was chosen."""
    served = results.served
    before = plan_of(served).threshold if served else plan.threshold
    if before == plan.threshold:
        return ""
    return (
        f"The threshold was chosen as {before:g}; calibration set it to {plan.threshold:g} to "
        "keep the promise."
    )


def _kept_bars(plan: Plan, whole: Plan | None, number: int) -> tuple[Bar, ...]:
    place = number - 1
    known = whole if whole and place < whole.layers else None  # records may have been lost
    return (
        _kept(plan.heads[place], known.heads[place] if known else None),
        _kept(plan.neurons[place], known.neurons[place] if known else None),
        Bar(_leaver_words(plan, number)),
    )


def _flow_bars(leaver: Record | None, staying: float) -> tuple[Bar, ...]:
    right = leaver.labels.get("accuracy") if leaver else None
    share = _share(leaver)
    return (
        Bar(wording.share(staying), staying),
        Bar(small_share(share), share),
        Bar(wording.share(right) if isinstance(right, float) else wording.DASH),
    )


def _kept(count: int, whole: int | None) -> Bar:
    if whole is None:
        return Bar(f"{count:,}")
    return Bar(f"{count:,} of {whole:,}", count / whole)


def _leaver_words(plan: Plan, number: int) -> str:
    if number == plan.layers:
        return "all that are left" if plan.stops else "all"
    return f"those surer than {plan.threshold:g}" if number in plan.stops else "nobody"


def _leavers(results: SlimResults) -> dict[int, Record]:
    """Who left after each layer: of the test split, or of the one named last."""
    records = results.all.all("leavers")
    splits = [record.labels.get("split") for record in records]
    split = "test" if "test" in splits else splits[-1] if splits else None
    return {
        int(number_of(record, "layer")): record
        for record in records
        if record.labels.get("split") == split
    }


def _share(leaver: Record | None) -> float:
    return 0.0 if leaver is None else float(leaver.value or 0.0)


def leaving_words(results: SlimResults) -> str:
    """On which inputs the leavers were counted; empty where they were not."""
    leavers = list(_leavers(results).values())
    if not leavers:
        return ""
    counted = wording.count_of(leavers[0].count, f"{leavers[0].labels.get('split')} input")
    return f"Who leaves where was counted on {counted}."


def front_block(results: SlimResults) -> Block:
    """The frontier as a table: every plan that no other beats, with its time where it was timed."""
    scale, dense = scale_of(results), results.dense_score or 0.0
    timed = {trial.cost_share: trial for trial in results.trials}
    front = sorted((p for p in results.points if p.on_front), key=lambda point: point.cost_share)
    rows = tuple(
        (
            wording.share(point.cost_share, 0),
            scale.text(point.score),
            wording.share(point.score / dense) if dense else "unknown",
            wording.trimmed(point.mean_layers),
            width_name(point.width),
            plan_words(point.plan),
            _timed_words(timed.get(point.cost_share)),
        )
        for point in front
    )
    heads = ("Arithmetic", "Score", f"Of {DENSE}", "Layers, mean", "Width", "Exits", "Timed")
    return Block("front", "The frontier as a table", "", heads, rows)


def _timed_words(trial: Trial | None) -> str:
    if trial is None:
        return "not timed"
    if trial.disturbance:
        return NOT_DECIDED
    return f"{speed_text(trial.speed, trial.interval)}, {speed_interval(trial.interval)}"
