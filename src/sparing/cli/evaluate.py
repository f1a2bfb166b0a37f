"""``sparing evaluate PATH``: how accurate a saved model is, with its interval."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sparing.cli._shared import Json, emit, progress_bar, verb
from sparing.core.errors import CheckpointError, UsageError

if TYPE_CHECKING:
    from torch import Tensor

    from sparing.tasks import Task
    from sparing.train import Evaluation

RESAMPLES = 1000
Intervals = dict[str, tuple[float, float]]


@verb
def run(
    path: Annotated[str, typer.Argument(help="The folder of a saved model, or a hub name.")],
    task: Annotated[
        str, typer.Option(help="The task to judge it on; without it the one it was trained for.")
    ] = "",
    split: Annotated[str, typer.Option(help="test, validation or train.")] = "test",
    data: Annotated[Path | None, typer.Option(help="Folder of the task's data.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="The task's own options, such as patch_size=2."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Judge a saved model on a task: its metrics with intervals, and on how many examples."""
    from sparing.cli._settings import apply
    from sparing.studies._fit import require_fit, require_head
    from sparing.studies._task import load_for, task_of, with_warning
    from sparing.train import evaluate
    from sparing.transfer.opening import open_model

    given: dict[str, Any] = {}
    model = open_model(path)
    require_head(model, path)
    task = task or task_of(path)
    if not task:
        raise UsageError(f"{path} does not say what it was trained for: name a --task")
    loaded, options = load_for(task, apply(given, settings or []), path, data)
    require_fit(model, loaded, path)
    loaded = with_warning(loaded, task, options, path)
    with progress_bar(quiet=as_json) as show:
        judged = evaluate(model, loaded, split, on_progress=show)
    if not math.isfinite(judged.loss):
        raise CheckpointError(f"{path}: the model's answers are not finite; its weights are spoilt")
    intervals = score_intervals(judged, loaded.split(split).labels)
    if as_json:
        emit({"model": path, "task_options": options, **_facts(judged, loaded, split, intervals)})
    else:
        _print(judged, loaded, split, intervals)


def _facts(judged: Evaluation, task: Task, split: str, intervals: Intervals) -> dict[str, Any]:
    """What a reader of ``--json`` gets of the scores."""
    scores = {
        name: {"value": value, "interval": intervals[name], "count": judged.count}
        for name, value in judged.scores.items()
    }
    return {
        "task": task.name,
        "split": split,
        "metric": judged.metric,
        "scores": scores,
        "accuracy": scores.get("accuracy"),
        "loss": judged.loss,
        "chance": task.chance_on(split),
        "notes": list(task.notes),
    }


def _print(judged: Evaluation, task: Task, split: str, intervals: Intervals) -> None:
    counted = f"{judged.count} examples"
    if judged.right is not None:
        counted = f"{sum(judged.right)} of {judged.count} right"
    print(f"{task.name}, {split} split, {counted}")
    for note in task.notes:
        print(note)
    for name, value in judged.scores.items():
        low, high = intervals[name]
        print(f"{name} {value:.4f} (95 % {low:.4f} to {high:.4f})")
    print(f"loss {judged.loss:.4f}, chance level {task.chance_on(split):.4f} ({judged.metric})")


def score_intervals(judged: Evaluation, labels: Tensor) -> Intervals:
    """The 95 % interval of each score: Wilson's for shares, the percentile bootstrap for others.

    They speak of other examples for this one model, not of other seeds.
    """
    shares = ("accuracy", "top5", "exact_match", "exact")
    return {
        name: wilson(round(value * judged.count), judged.count)
        if name in shares
        else _resampled(name, judged, labels)
        for name, value in judged.scores.items()
    }


def _resampled(name: str, judged: Evaluation, labels: Tensor) -> tuple[float, float]:
    import torch

    generator = torch.Generator().manual_seed(0)
    drawn = torch.randint(judged.count, (RESAMPLES, judged.count), generator=generator)
    if name in judged.each:
        values = torch.tensor(judged.each[name], dtype=torch.float64)[drawn].mean(1)
    else:
        values = _scores_of(name, judged, labels, drawn)
    low, high = values.quantile(torch.tensor([0.025, 0.975], dtype=values.dtype)).tolist()
    # rounding must not leave what is certain outside
    return min(low, judged.scores[name]), max(high, judged.scores[name])


def _scores_of(name: str, judged: Evaluation, labels: Tensor, drawn: Tensor) -> Tensor:
    """The metric of each row of drawn examples."""
    import torch

    from sparing.tasks._scores import metric

    outputs = torch.tensor(judged.predictions)
    if judged.right is not None:
        outputs = torch.nn.functional.one_hot(outputs).float()
    outputs = outputs.reshape(judged.count, -1)
    return torch.tensor([metric(name).score(outputs[row], labels[row]) for row in drawn])


def wilson(right: int, count: int, confidence: float = 0.95) -> tuple[float, float]:
    """The interval of a share from its count: Wilson's, which holds near 0 and 1 too.

    It speaks of other examples for this one model, not of other seeds. Source: Wilson, 1927.
    """
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    share, spread = right / count, z * z / count
    centre = (share + spread / 2) / (1 + spread)
    reach = z * math.sqrt(share * (1 - share) / count + spread / (4 * count)) / (1 + spread)
    # rounding must not leave what is certain outside
    return max(0.0, min(centre - reach, share)), min(1.0, max(centre + reach, share))
