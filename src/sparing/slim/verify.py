"""The served form on rows not used for its choice: calibration, time, score, exits."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from sparing.core.record import Label, Record
from sparing.experiment.owned import ANSWERS
from sparing.experiment.run import save_tensors
from sparing.measure.calibration import calibrate, upper_bound
from sparing.measure.inputs import InputTimes, fastest
from sparing.slim.engines import Runs
from sparing.slim.int8 import int8_runs
from sparing.slim.search.choose import best_fixed
from sparing.slim.search.exits import THRESHOLDS, decide, outcomes
from sparing.slim.state import Surveyed
from sparing.slim.steps import (
    DENSE,
    OURS,
    STATIC,
    Steps,
    all_logits,
    gap_record,
    logits_one_by_one,
    records_of,
    speed_record,
)
from sparing.tasks.shared.scores import metric
from sparing.train import evaluate


def score_baseline(steps: Steps) -> list[Record]:
    """The dense baseline on validation; on test rows it is evaluated beside all other forms."""
    result = evaluate(steps.models.baseline(), steps.task, "validation")
    labels: dict[str, Label] = {"arm": DENSE, "split": "validation", "metric": steps.task.metric}
    return [Record("score", result.score, "score", "measured", labels, count=result.count)]


def calibrate_plan(steps: Steps) -> list[Record]:
    """Bound how often the served plan answers otherwise than the dense model.

    It is evaluated on the second half of validation, which was not used for the choice. Without
    ``epsilon`` the plan keeps its threshold. With it, the lowest threshold is taken, from the
    chosen one up, that keeps the rate ``epsilon``.
    """
    held, plan = steps.parts[1], steps.served(calibrated=False).plan
    seen = outcomes(steps.model(), steps.task, held, plan)
    dense = all_logits(steps, held, steps.models.baseline()).argmax(-1)
    thresholds = [1.0, *(t for t in reversed(THRESHOLDS) if t > plan.threshold), plan.threshold]
    first = min(plan.stops, default=1)
    answers = [decide(seen, t, first, plan.layers).answers for t in thresholds]
    losses = torch.stack([given != dense for given in answers], 1).numpy()
    setting = len(thresholds) - 1
    labels: dict[str, Label] = {"delta": steps.options.delta, "epsilon": steps.options.epsilon}
    if steps.options.epsilon:
        promise = calibrate(losses, epsilon=steps.options.epsilon, delta=steps.options.delta)
        labels |= {"promise": str(promise), "kept": promise.setting is not None}
        setting = promise.setting if promise.setting is not None else 0
    steps.keep(threshold=thresholds[setting])
    count, differing = len(held), int(losses[:, setting].sum())
    labels |= {"disagreements": differing, "plan": json.dumps(steps.served().plan.to_dict())}
    bound = upper_bound(differing, count, steps.options.delta)
    return [
        Record("disagreement", differing / count, "share", "measured", labels, count=count),
        Record("disagreement_bound", bound, "share", "measured", labels, count=count),
    ]


def train_static(steps: Steps) -> list[Record]:
    """Distil the static pruned model, a control, with as many steps as the adaptive model.

    It is the best surveyed plan without exits, within the FLOPs that the served form was allowed.
    If one was a candidate, the last one is read back.
    """
    state, form = steps.state, steps.served(calibrated=False)
    point = best_fixed(state, form.allowed_share)
    folder = state.alone[-1].folder if state.alone else "static"
    result = steps.models.train_static(point.plan, folder)
    steps.keep(static=folder)
    labels: dict[str, Label] = {"arm": STATIC, "plan": json.dumps(point.plan.to_dict())}
    return [
        Record("static_plan", point.cost_share, "share", "modelled", labels),
        Record("train_time_s", result.train_time_s, "s", "measured", {"arm": STATIC}),
        Record("train_examples", result.examples_seen, "examples", "measured", {"arm": STATIC}),
    ]


def verify_plan(steps: Steps, batch: int) -> list[Record]:
    """Time and score of dense, slim and static on the same test inputs, from the same calls."""
    examples, runs = steps.timed, steps.dense_runs()
    ours = steps.engines.ours(steps.model(), steps.served().plan, "chosen")
    runs |= {f"{OURS} {name}": run for name, run in ours.items()}
    static = steps.static()
    if static is not None:
        fixed = steps.engines.ours(static, static.plan, "static")
        runs |= {f"{STATIC} {name}": run for name, run in fixed.items()}
    times, logits = steps.time(runs, examples, batch, steps.options.rounds)
    reference = fastest(times, [name for name in runs if name.startswith(DENSE)])
    records: list[Record] = []
    for name, taken in times.items():
        arm, _, engine = name.partition(" ")
        labels: dict[str, Label] = {"arm": arm, "engine": engine, "batch": batch}
        pair = (logits[name], logits[reference])
        compared = times[reference] if name != reference else None
        records += records_of(steps.task.metric, taken, compared, pair, examples.labels, labels)
    if static is not None:
        records += _beside_static(steps, times, logits, batch)
    return records


def _beside_static(
    steps: Steps, times: Mapping[str, InputTimes[Any]], logits: Mapping[str, Tensor], batch: int
) -> list[Record]:
    """Slim against the static pruned model, each in its fastest engine."""
    ours, static = (
        fastest(times, [name for name in times if name.startswith(arm)]) for arm in (OURS, STATIC)
    )
    name, truth = steps.task.metric, steps.timed.labels
    labels: dict[str, Label] = {"arm": OURS, "batch": batch, "metric": name}
    return [
        speed_record("static_speed_up", times[ours], times[static], labels),
        gap_record("static_difference", name, (logits[ours], logits[static]), truth, labels),
    ]


def early_exits(steps: Steps) -> list[Record]:
    """The share of test inputs that exit after each layer, and the accuracy of these."""
    test, plan = steps.timed, steps.served().plan
    seen = outcomes(steps.model(), steps.task, test, plan)
    decision = decide(seen, plan.threshold, min(plan.stops, default=1), plan.layers)
    correct = (decision.answers == test.labels).double()
    records = []
    for layer in sorted({*plan.stops, plan.layers}):
        here = decision.layers == layer
        count = int(here.sum())
        labels: dict[str, Label] = {"layer": layer, "split": "test"}
        labels["accuracy"] = float(correct[here].mean()) if count else None
        share = count / len(test)
        records.append(Record("exit_rate", share, "share", "measured", labels, count=len(test)))
    return records


def measure_front(steps: Steps) -> list[Record]:
    """Speed and score of some plans of the front, one input at a time.

    The plans are the adaptive model's, before fine-tuning, each in one engine. Speed and score
    differences are to the fastest dense form, in the same calls.
    """
    points, model, runs = (
        _spread(steps.state.front, steps.options.front_plans),
        steps.models.adaptive(),
        {},
    )
    dense = steps.dense_runs()
    for number, point in enumerate(points):
        engines = steps.engines.ours(model, point.plan, f"plan-{number}")
        runs[f"plan {number}"] = engines.get("onnxruntime", engines["eager"])
    times, logits = steps.time(dense | runs, steps.timed, batch=1, rounds=2)
    baseline = fastest(times, list(dense))
    name, truth = steps.task.metric, steps.timed.labels
    records = []
    for run, point in zip(runs, points, strict=True):
        labels: dict[str, Label] = {
            "plan": json.dumps(point.plan.to_dict()),
            "cost_share": point.cost_share,
            "metric": name,
            "split": "test",
        }
        score = metric(name).score(logits[run], truth)
        records += [
            speed_record("front_speed_up", times[run], times[baseline], labels),
            Record("front_score", score, "score", "measured", labels, count=len(truth)),
            gap_record("front_difference", name, (logits[run], logits[baseline]), truth, labels),
        ]
    return records


def _spread(points: list[Surveyed], most: int) -> list[Surveyed]:
    """Up to ``most`` points in even steps of cost, from the cheapest to the most expensive."""
    if len(points) <= most:
        return points
    low, high = points[0].cost_share, points[-1].cost_share
    chosen: list[Surveyed] = []
    for number in range(most):
        aim = low + (high - low) * number / max(1, most - 1)
        nearest = min(points, key=lambda point: abs(point.cost_share - aim))
        if nearest not in chosen:
            chosen.append(nearest)
    return chosen


def answer_all(steps: Steps) -> list[Record]:
    """Score dense, slim and static, and INT8 if it was tried, on the whole test split.

    Timing may have used only some of it. The logits go to ``answers.safetensors`` under the
    variants' names, beside ``labels``, so that runs can be pooled example by example.
    """
    test = steps.task.test
    logits = {arm: logits_one_by_one(steps, run, test) for arm, run in _one_engine(steps).items()}
    save_tensors(steps.models.folder / ANSWERS, {**logits, "labels": test.labels})
    records: list[Record] = []
    for arm, answers in logits.items():
        for name in dict.fromkeys((steps.task.metric, "accuracy")):
            labels: dict[str, Label] = {"arm": arm, "metric": name, "split": "test"}
            labels["primary"] = name == steps.task.metric
            score = metric(name).score(answers, test.labels)
            count = len(test)
            records.append(Record("whole_score", score, "score", "measured", labels, count=count))
            if arm != DENSE:
                pair = (answers, logits[DENSE])
                records.append(gap_record("whole_difference", name, pair, test.labels, labels))
    return records


def _one_engine(steps: Steps) -> Runs:
    """Each variant in one engine: ONNX Runtime if it is installed, else PyTorch."""
    dense = steps.engines.dense(steps.models.baseline())
    engine = "onnxruntime" if "onnxruntime" in dense else "eager"
    runs = {DENSE: dense[engine]}
    runs[OURS] = steps.engines.ours(steps.model(), steps.served().plan, "answers")[engine]
    static = steps.static()
    if static is not None:
        runs[STATIC] = steps.engines.ours(static, static.plan, "answers-static")[engine]
    return runs | int8_runs(steps)
