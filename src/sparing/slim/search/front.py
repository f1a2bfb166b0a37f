"""The whole frontier in time: some of its plans, measured on test inputs beside the dense model."""

from __future__ import annotations

import json
import random

from torch import Tensor

from sparing.core.record import Label, Record
from sparing.experiment.run import Run
from sparing.measure.inputs import InputTimes, fastest, speed_up, time_inputs
from sparing.slim.cells import DENSE, Steps, front_of, in_order, timed
from sparing.slim.engines import Run as Call
from sparing.slim.engines import Runs
from sparing.slim.models import inputs_of
from sparing.slim.search.resampling import score_difference
from sparing.tasks import Examples
from sparing.tasks.shared.scores import metric
from sparing.transfer.adaptive import FrontierPoint


def measure_front(steps: Steps, run: Run, most: int) -> list[Record]:
    """Speed and score of up to ``most`` plans of the front, one input at a time.

    They are the adaptive model's own, not polished, each in one engine. Speed is over the fastest
    dense form; score differences are to the same calls of it.
    """
    points = _spread(front_of(run), most)
    calls = {f"{DENSE} {n}": call for n, call in steps.engines.dense(steps.models.rival()).items()}
    rivals = list(calls)
    model = steps.models.adaptive()
    names = [f"plan {number}" for number in range(len(points))]
    for name, point in zip(names, points, strict=True):
        forms = steps.engines.ours(model, point.plan, name.replace(" ", "-"))
        calls[name] = _one_engine(forms)
    examples = timed(steps)
    times, logits = _timed(steps, calls, examples)
    rival = fastest(times, rivals)
    records = []
    for name, point in zip(names, points, strict=True):
        labels: dict[str, Label] = {
            "plan": json.dumps(point.plan.to_dict()),
            "cost_share": point.cost_share,
            "metric": steps.task.metric,
            "split": "test",
        }
        records.append(_speed(times[name], times[rival], labels))
        records += _scores(steps.task.metric, logits[name], logits[rival], examples, labels)
    return records


def _timed(
    steps: Steps, calls: Runs, examples: Examples
) -> tuple[dict[str, InputTimes[Tensor]], dict[str, Tensor]]:
    """Times of every call on every example by itself, and its answers in the examples' order."""
    batches = inputs_of(steps.task, examples, 1)
    random.Random(0).shuffle(batches)
    inputs = [inputs for _, inputs in batches]
    times = time_inputs(calls, inputs, rounds=2, threads=steps.engines.thread_count)
    return times, {name: in_order(batches, found, examples) for name, found in times.items()}


def _scores(
    name: str, ours: Tensor, dense: Tensor, examples: Examples, labels: dict[str, Label]
) -> list[Record]:
    gap, count = score_difference(name, ours, dense, examples.labels), len(examples)
    score = metric(name).score(ours, examples.labels)
    return [
        Record("front_score", score, "score", "measured", labels, count=count),
        Record("front_difference", gap.value, "score", "measured", labels, gap.interval, count),
    ]


def _speed(ours: InputTimes[Tensor], dense: InputTimes[Tensor], labels: dict[str, Label]) -> Record:
    ratio = speed_up(ours, dense)
    return Record(
        "front_speed_up", ratio.value, "ratio", "measured", labels, ratio.interval, ratio.inputs
    )


def _one_engine(forms: Runs) -> Call:
    return forms.get("onnxruntime", forms["eager"])


def _spread(points: list[FrontierPoint], most: int) -> list[FrontierPoint]:
    """Up to ``most`` of them, the cheapest and the dearest among them, by even steps of cost."""
    if len(points) <= most:
        return points
    low, high = points[0].cost_share, points[-1].cost_share
    chosen = []
    for number in range(most):
        aim = low + (high - low) * number / max(1, most - 1)
        nearest = min(points, key=lambda point: abs(point.cost_share - aim))
        if nearest not in chosen:
            chosen.append(nearest)
    return chosen
