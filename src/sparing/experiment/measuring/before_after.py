"""A model before and after a change: its scores on the test split, and its time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from sparing.core.errors import CheckpointError
from sparing.core.progress import Progress
from sparing.experiment.inputs.batches import call_of
from sparing.measure.latency import paired_latency
from sparing.measure.statistics import mean_difference, with_unseen
from sparing.train import evaluate

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from sparing.tasks import Task
    from sparing.train.evaluation import Evaluation

TIMED_EXAMPLES, TIMED_SECONDS = 8, 30.0


def evaluated(model: PreTrainedModel, task: Task, name: str, on_progress: Progress) -> Evaluation:
    """A model on the test split; ``CheckpointError`` where its answers are not finite."""
    evaluation = evaluate(model, task, "test", on_progress=on_progress)
    if not math.isfinite(evaluation.loss):
        raise CheckpointError(f"{name}: the model's answers are not finite; its weights are spoilt")
    return evaluation


def scores_beside(before: Evaluation, after: Evaluation) -> dict[str, dict[str, Any]]:
    """Each metric of both; accuracy with the interval of the paired difference over examples."""
    rows: dict[str, dict[str, Any]] = {
        name: {"before": before.scores[name], "after": value}
        for name, value in after.scores.items()
    }
    if "accuracy" in rows and before.right is not None and after.right is not None:
        after_answers, before_answers = (
            [float(correct) for correct in evaluation.correct] for evaluation in (after, before)
        )
        gap = mean_difference(after_answers, before_answers)
        interval = gap.interval and with_unseen(gap.interval, gap.count)
        rows["accuracy"] |= {"difference": gap.value, "interval": interval}
    return rows


def latency_beside(before: PreTrainedModel, after: PreTrainedModel, task: Task) -> dict[str, Any]:
    """Both models on the same few test examples of all lengths, one at a time, on one thread."""
    inputs = [task.collate([task.test[index]]) for index in _spread(task.test.lengths)]
    for given in inputs:
        given.pop("labels")

    def all_of(model: PreTrainedModel) -> Callable[[], object]:
        calls = [call_of(model, given) for given in inputs]
        return lambda: [call() for call in calls]

    both = {"before": all_of(before), "after": all_of(after)}
    times = paired_latency(both, baseline="before", budget_s=TIMED_SECONDS)
    ratio = times["after"].ratio
    return {
        "disturbance": times["after"].disturbance,
        "before_ms": times["before"].p50_ms / len(inputs),
        "after_ms": times["after"].p50_ms / len(inputs),
        "ratio": ratio.value,
        "interval": ratio.interval,
        "rounds": ratio.count,
        "threads": times["after"].threads,
        "batch": 1,
    }


def _spread(lengths: Sequence[int]) -> list[int]:
    """A few examples, evenly over the lengths."""
    order = sorted(range(len(lengths)), key=lambda index: lengths[index])
    count = min(TIMED_EXAMPLES, len(order))
    return [order[(2 * part + 1) * len(order) // (2 * count)] for part in range(count)]
