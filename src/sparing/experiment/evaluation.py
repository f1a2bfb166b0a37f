"""Evaluate a model on a task: its scores with intervals, as one result that prints."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

from sparing.core.errors import CheckpointError
from sparing.core.progress import Progress

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

    from sparing.tasks import Task
    from sparing.train import Evaluation

RESAMPLES = 1000
SHOWN_NOTES = 10
Intervals = dict[str, tuple[float, float]]


@dataclass(frozen=True)
class Scores:
    """The scores of one model on one split, each with its 95 % interval over examples.

    ``evaluation`` holds the model's answer to every example; ``task_options`` are the options that
    the task was loaded with.
    """

    model: str
    task: str
    split: str
    evaluation: Evaluation
    intervals: Intervals
    chance: float
    notes: tuple[str, ...]
    task_options: dict[str, Any]

    @property
    def score(self) -> float:
        """The metric that the task is evaluated by."""
        return self.evaluation.score

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        result = self.evaluation
        scores = {
            name: {
                "value": value,
                "interval": self.intervals[name],
                "count": len(result.per_example.get(name, result.predictions)),
            }
            for name, value in result.scores.items()
        }
        return {
            "model": self.model,
            "task_options": self.task_options,
            "task": self.task,
            "split": self.split,
            "metric": result.metric,
            "scores": scores,
            "accuracy": scores.get("accuracy"),
            "loss": result.loss,
            "chance": self.chance,
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        """Lines for a person."""
        result = self.evaluation
        counted = f"{result.count} examples"
        if result.right is not None:
            counted = f"{sum(result.right)} of {result.count} right"
        lines = [f"{self.task}, {self.split} split, {counted}", *self.notes[:SHOWN_NOTES]]
        for name, value in result.scores.items():
            low, high = self.intervals[name]
            lines.append(f"{name} {value:.4f} (95 % {low:.4f} to {high:.4f})")
        level = f"chance level {self.chance:.4f} ({result.metric})"
        return "\n".join([*lines, f"loss {result.loss:.4f}, {level}" if result.loss else level])


def evaluate_fitting(
    model: PreTrainedModel,
    name: str,
    loaded: tuple[Task, dict[str, Any]],
    split: str,
    on_progress: Progress,
    origin: tuple[str, str] = ("", ""),
) -> Scores:
    """Evaluate a model on a loaded task with its options, after a check that both fit.

    ``origin`` is the given name of the task and the path of the model: a note says so where that
    model was trained on other data.

    Raises ``UsageError`` where they do not fit and ``CheckpointError`` for answers that are not
    finite.
    """
    from sparing.experiment.inputs.fit import require_fit
    from sparing.experiment.inputs.task import with_warning
    from sparing.train import evaluate

    task, options = loaded
    require_fit(model, task, name)
    task = with_warning(task, origin[0], options, origin[1])
    result = evaluate(model, task, split, on_progress=on_progress)
    if not math.isfinite(result.loss):
        raise CheckpointError(f"{name}: the model's answers are not finite; its weights are spoilt")
    intervals = score_intervals(result)
    chance = task.chance_on(split)
    return Scores(name, task.name, split, result, intervals, chance, task.notes, options)


def score_intervals(evaluation: Evaluation) -> Intervals:
    """The 95 % interval of each score: Wilson's for shares, the percentile bootstrap for others.

    They cover other examples for this one model, not other seeds.
    """
    shares = ("accuracy", "top5", "exact_match", "exact", "same_labels", "same_answer")
    return {
        name: wilson(round(value * evaluation.count), evaluation.count)
        if name in shares
        else _resampled(name, evaluation)
        for name, value in evaluation.scores.items()
    }


def _resampled(name: str, evaluation: Evaluation) -> tuple[float, float]:
    import torch

    generator = torch.Generator().manual_seed(0)
    count = len(evaluation.per_example.get(name, evaluation.predictions))
    sampled = torch.randint(count, (RESAMPLES, count), generator=generator)
    if name in evaluation.per_example:
        values = torch.tensor(evaluation.per_example[name], dtype=torch.float64)[sampled].mean(1)
    else:
        values = _scores_of(name, evaluation, sampled)
    low, high = values.quantile(torch.tensor([0.025, 0.975], dtype=values.dtype)).tolist()
    # rounding must not exclude the measured value
    return min(low, evaluation.scores[name]), max(high, evaluation.scores[name])


def _scores_of(name: str, evaluation: Evaluation, sampled: Tensor) -> Tensor:
    """The metric of each row of sampled examples."""
    import torch

    from sparing.tasks.shared.scores import metric
    from sparing.tasks.shared.sets import SCORES, resampled

    outputs, truth = evaluation.outputs, evaluation.truth
    assert outputs is not None
    assert truth is not None
    if name in SCORES:
        return resampled(name, outputs, truth, sampled)
    return torch.tensor([metric(name).score(outputs[row], truth[row]) for row in sampled])


def wilson(right: int, count: int, confidence: float = 0.95) -> tuple[float, float]:
    """The interval of a share from its count: Wilson's, which holds near 0 and 1 too.

    It covers other examples for this one model, not other seeds. Source: Wilson, 1927.
    """
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    share, spread = right / count, z * z / count
    centre = (share + spread / 2) / (1 + spread)
    reach = z * math.sqrt(share * (1 - share) / count + spread / (4 * count)) / (1 + spread)
    # rounding must not exclude the measured value
    return max(0.0, min(centre - reach, share)), min(1.0, max(centre + reach, share))
