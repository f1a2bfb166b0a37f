"""The steps of ``slim`` after training: survey, choose, calibrate, verify."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from sparing.core.errors import UsageError
from sparing.core.reading import parse_json
from sparing.core.record import Label, Record
from sparing.experiment.run import Run
from sparing.layers.plan import Plan
from sparing.measure.calibration import calibrate, upper_bound
from sparing.measure.inputs import InputTimes, fastest, speed_up, time_inputs
from sparing.measure.statistics import Difference
from sparing.slim.engines import Engines
from sparing.slim.models import Models, halves, inputs_of
from sparing.slim.search.exits import THRESHOLDS, Outcomes, decide, dense_flops, outcomes
from sparing.slim.search.frontier import Point, Variant, best, contenders, random_control, survey
from sparing.slim.search.resampling import good_enough, score_difference
from sparing.tasks import Examples, Task
from sparing.tasks.shared.scores import metric
from sparing.train import evaluate
from sparing.transfer.adaptive import FrontierPoint, adapt

DENSE, OURS, STATIC = "dense", "slim", "static"


@dataclass(frozen=True, eq=False)
class Steps:
    """What the steps work on, and what they aim for."""

    models: Models
    engines: Engines
    variants: tuple[Variant, ...]
    speed: float
    floor: float
    epsilon: float
    delta: float
    rounds: int
    timed_examples: int

    @property
    def task(self) -> Task:
        """The task."""
        return self.models.task

    @cached_property
    def parts(self) -> tuple[Examples, Examples]:
        """The held-out split, halved: to choose on, to calibrate on."""
        return halves(self.task.split(self.models.choose_on))

    @cached_property
    def dense_flops(self) -> float:
        """What the dense model takes on average for the inputs that plans are chosen on.

        Not the adaptive model's own whole, which is less where its heads were narrowed.
        """
        return float(dense_flops(adapt(self.models.dense()), self.parts[0]).mean())


def survey_plans(steps: Steps) -> list[Record]:
    """Every plan's cost and score on the first half of validation, with the random control."""
    model, chosen_on = steps.models.adaptive(), steps.parts[0]
    whole = steps.dense_flops
    every: list[Point] = []
    controls: list[Point] = []
    seen: dict[Variant, Outcomes] = {}
    for variant, found, points in survey(model, steps.task, chosen_on, steps.variants, whole):
        every += points
        seen[variant] = found
        leaving = [point for point in best(points) if point.kind == "exits"]
        controls += [random_control(steps.task, found, point, whole) for point in leaving]
    cut = [point for point in every if point.cost_share < 1]
    front, candidates = best(cut), contenders(cut)
    dense = all_logits(steps, chosen_on, steps.models.rival())
    good = [point for point in candidates if _is_good(steps, point, seen[point.variant], dense)]
    records = []
    for point in [*every, *controls]:
        record = point.record(on_front=point in front)
        own = {"contender": True, "good": point in good} if point in candidates else {}
        records.append(replace(record, labels={**record.labels, **own}))
    score = metric(steps.task.metric).score(dense, chosen_on.labels)
    return [*records, Record("dense_score", score, "score", "measured", {"split": "choosing"})]


def _is_good(steps: Steps, point: Point, found: Outcomes, dense: Tensor) -> bool:
    """Whether a plan keeps the floor's share of the dense score, as far as its inputs can tell."""
    plan = point.plan
    first = min(plan.stops, default=1)
    decision = decide(found, plan.threshold, first, plan.layers, plan.narrow_above)
    return good_enough(steps.task.metric, decision.logits, dense, found.labels, steps.floor)[2]


@torch.inference_mode()
def all_logits(steps: Steps, examples: Examples, model: Any) -> Tensor:
    """A model's answers to a split, in its order."""
    found = torch.zeros(len(examples), steps.task.classes)
    for indices, inputs in inputs_of(steps.task, examples, 64):
        found[indices] = model(**inputs).logits.float()
    return found


def calibrate_plan(steps: Steps, run: Run) -> list[Record]:
    """How often the chosen plan may answer otherwise than the dense model, with a guarantee.

    It is judged on the second half of validation, which had no part in choosing it: the bound of
    the plan as it is, or, where a rate ``epsilon`` is asked for, the boldest threshold, up to the
    chosen one, that keeps it.
    """
    held, plan = steps.parts[1], served_plan(run)
    found = outcomes(steps.models.served(), steps.task, held, plan)
    dense = all_logits(steps, held, steps.models.rival()).argmax(-1)
    thresholds = [1.0, *(t for t in reversed(THRESHOLDS) if t > plan.threshold), plan.threshold]
    first = min(plan.stops, default=1)
    answers = [decide(found, t, first, plan.layers).answers for t in thresholds]
    losses = torch.stack([given != dense for given in answers], 1).numpy()
    setting = len(thresholds) - 1
    labels: dict[str, Label] = {"delta": steps.delta, "epsilon": steps.epsilon}
    if steps.epsilon:
        promise = calibrate(losses, epsilon=steps.epsilon, delta=steps.delta)
        labels |= {"promise": str(promise), "kept": promise.setting is not None}
        setting = promise.setting if promise.setting is not None else 0
    final = replace(plan, threshold=thresholds[setting])
    count, differing = len(held), int(losses[:, setting].sum())
    labels |= {"disagreements": differing, "plan": json.dumps(final.to_dict())}
    bound = upper_bound(differing, count, steps.delta)
    return [
        Record("disagreement", differing / count, "share", "measured", labels, count=count),
        Record("disagreement_bound", bound, "share", "measured", labels, count=count),
    ]


def verify_plan(steps: Steps, run: Run, batch: int) -> list[Record]:
    """Time and score of dense and ours on the same test inputs, from the same calls."""
    task, examples = steps.task, timed(steps)
    calls = {f"{DENSE} {n}": call for n, call in steps.engines.dense(steps.models.rival()).items()}
    ours = steps.engines.ours(steps.models.served(), final_plan(run), "chosen")
    calls |= {f"{OURS} {name}": call for name, call in ours.items()}
    static = steps.models.static()
    if static is not None:
        fixed = steps.engines.ours(static, static.plan, "static")
        calls |= {f"{STATIC} {name}": call for name, call in fixed.items()}
    batches = inputs_of(task, examples, batch)
    random.Random(0).shuffle(batches)
    inputs = [inputs for _, inputs in batches]
    times = time_inputs(calls, inputs, rounds=steps.rounds, threads=steps.engines.thread_count)
    logits = {name: in_order(batches, found, examples) for name, found in times.items()}
    reference = fastest(times, [name for name in calls if name.startswith(DENSE)])
    records: list[Record] = []
    for name, found in times.items():
        arm, _, engine = name.partition(" ")
        labels: dict[str, Label] = {"arm": arm, "engine": engine, "batch": batch}
        pair = (logits[name], logits[reference])
        compared = times[reference] if name != reference else None
        records += records_of(task, found, compared, pair, examples, labels)
    if static is not None:
        records += _beside_static(task, times, logits, examples, batch)
    return records


def _beside_static(
    task: Task,
    times: Mapping[str, InputTimes[Any]],
    logits: Mapping[str, Tensor],
    examples: Examples,
    batch: int,
) -> list[Record]:
    """Ours against the fixed control, each in its fastest engine."""
    ours, static = (
        fastest(times, [name for name in times if name.startswith(arm)]) for arm in (OURS, STATIC)
    )
    ratio = speed_up(times[ours], times[static])
    gap = score_difference(task.metric, logits[ours], logits[static], examples.labels)
    labels: dict[str, Label] = {"arm": OURS, "batch": batch, "metric": task.metric}
    count = len(examples)
    return [
        Record(
            "static_speed_up",
            ratio.value,
            "ratio",
            "measured",
            labels,
            ratio.interval,
            ratio.inputs,
        ),
        Record("static_difference", gap.value, "score", "measured", labels, gap.interval, count),
    ]


def records_of(
    task: Task,
    found: InputTimes[Any],
    reference: InputTimes[Any] | None,
    logits: tuple[Tensor, Tensor],
    examples: Examples,
    labels: dict[str, Label],
) -> list[Record]:
    """Time, speed, score and difference of one form; ``logits`` are its own and the reference's."""
    gap = score_difference(task.metric, *logits, examples.labels)
    return [
        *_time_records(found, reference, labels),
        *_score_records(task, logits[0], examples, gap, labels),
    ]


def _time_records(
    found: InputTimes[Any], reference: InputTimes[Any] | None, labels: dict[str, Label]
) -> list[Record]:
    count = found.times_ms.shape[1]
    mean = float(found.typical_ms.mean())
    records = [Record("latency_ms", mean, "ms", "measured", {**labels, "of": "mean"}, count=count)]
    for share in (50.0, 99.0):
        value = found.percentile_ms(share)
        own = {**labels, "of": f"p{share:g}"}
        records.append(Record("latency_ms", value, "ms", "measured", own, count=count))
    if reference is not None:
        ratio = speed_up(found, reference)
        records.append(
            Record("speed_up", ratio.value, "ratio", "measured", labels, ratio.interval, count)
        )
    return records


def _score_records(
    task: Task, logits: Tensor, examples: Examples, gap: Difference, labels: dict[str, Label]
) -> list[Record]:
    own = {**labels, "metric": task.metric, "split": "test"}
    value = metric(task.metric).score(logits, examples.labels)
    count = len(examples)
    return [
        Record("score", value, "score", "measured", own, count=count),
        Record("score_difference", gap.value, "score", "measured", own, gap.interval, count),
    ]


def leavers(steps: Steps, run: Run) -> list[Record]:
    """The share of test inputs that leave after each layer, and how the scores of these are."""
    test, plan = timed(steps), final_plan(run)
    found = outcomes(steps.models.served(), steps.task, test, plan)
    decision = decide(found, plan.threshold, min(plan.stops, default=1), plan.layers)
    right = (decision.answers == test.labels).double()
    records = []
    for layer in sorted({*plan.stops, plan.layers}):
        here = decision.layers == layer
        count = int(here.sum())
        labels: dict[str, Label] = {"layer": layer, "split": "test"}
        labels["accuracy"] = float(right[here].mean()) if count else None
        share = count / len(test)
        records.append(Record("leavers", share, "share", "measured", labels, count=len(test)))
    return records


def in_order(
    batches: Sequence[tuple[list[int], Any]], found: InputTimes[Any], examples: Examples
) -> Tensor:
    """The answers of the timed calls in the order of the examples."""
    logits = torch.zeros(len(examples), found.answers[0].shape[-1])
    for (indices, _), answer in zip(batches, found.answers, strict=True):
        logits[indices] = answer.float()
    return logits


def timed(steps: Steps) -> Examples:
    """The test examples that are timed: all, or as many as are allowed, at random."""
    test = steps.task.test
    if len(test) <= steps.timed_examples:
        return test
    return test.subset(sorted(random.Random(0).sample(range(len(test)), steps.timed_examples)))


def front_of(run: Run) -> list[FrontierPoint]:
    """The surveyed plans that nothing beats, cheapest first."""
    return points_of(run, "frontier_score")


def contenders_of(run: Run) -> list[FrontierPoint]:
    """The surveyed plans that none nearly as dear beats, cheapest first.

    A survey from before they were marked has its front alone.
    """
    return points_of(run, "frontier_score", label="contender") or front_of(run)


def good_points(run: Run, among: Sequence[FrontierPoint]) -> list[FrontierPoint]:
    """Those of them that are good enough, in their order."""
    good = points_of(run, "frontier_score", label="good")
    return [point for point in among if point in good]


def points_of(run: Run, name: str, *, label: str = "on_front") -> list[FrontierPoint]:
    """Those of the records of a name that have a label, cheapest first."""
    points = [
        FrontierPoint(_plan(record), float(str(record.labels["cost_share"])), record.value)
        for record in run.records()
        if record.name == name and record.labels.get(label)
    ]
    return sorted(points, key=lambda point: point.cost_share)


def chosen_plan(run: Run) -> Plan:
    """What ``choose_plan`` took."""
    return _plan(_one(run, "chosen_plan"))


def chosen_share(run: Run) -> float:
    """The arithmetic of that plan, as a share of the dense model's."""
    return float(_one(run, "chosen_plan").value or 0.0)


def fallback(run: Run) -> FrontierPoint | None:
    """What was good enough, or at least the best, where the chosen plan was not good enough."""
    found = next((record for record in run.records() if record.name == "fallback_plan"), None)
    if found is None:
        return None
    return FrontierPoint(_plan(found), float(found.value or 0.0), float(str(found.labels["score"])))


def served_plan(run: Run) -> Plan:
    """What polishing made of it, where the plan was polished."""
    polished = (record for record in run.records() if record.name == "polished_plan")
    return next((_plan(record) for record in polished), None) or chosen_plan(run)


def final_plan(run: Run) -> Plan:
    """What ``calibrate_plan`` made of it."""
    return _plan(_one(run, "disagreement_bound"))


def _one(run: Run, name: str) -> Record:
    """The record of an earlier step; raises ``UsageError`` where that step failed."""
    found = next((record for record in run.records() if record.name == name), None)
    if found is None:
        raise UsageError(f"there is no {name.replace('_', ' ')}: an earlier step has failed")
    return found


def _plan(record: Record) -> Plan:
    return Plan.from_dict(parse_json(str(record.labels["plan"])))


def dense_records(steps: Steps) -> list[Record]:
    """The rival on validation; on test rows it is judged beside all other forms."""
    judged = evaluate(steps.models.rival(), steps.task, "validation")
    labels: dict[str, Label] = {"arm": DENSE, "split": "validation", "metric": steps.task.metric}
    return [Record("score", judged.score, "score", "measured", labels, count=judged.count)]
