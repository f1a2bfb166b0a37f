"""``sparing prune MODEL --task TASK --heads SHARE``: the least important heads removed for good."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sparing.cli._saving import require_new, save_model
from sparing.cli._shared import Json, emit, progress_bar, verb
from sparing.core.errors import CheckpointError

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

    from sparing.tasks import Task
    from sparing.train.evaluation import Evaluation

BATCH_SIZE, TIMED_EXAMPLES, TIMED_SECONDS = 32, 8, 30.0


@verb
def run(
    model: Annotated[str, typer.Argument(help="The folder of a fine-tuned model, or a hub name.")],
    task: Annotated[str, typer.Option(help="The task that it was fine-tuned for.")],
    heads: Annotated[float, typer.Option(help="The share of all heads to be gone, such as 0.3.")],
    output_dir: Annotated[Path, typer.Option(help="Where the pruned model goes: a new folder.")],
    step: Annotated[float, typer.Option(help="The share removed between two rankings.")] = 0.1,
    examples: Annotated[
        int, typer.Option(min=1, help="Training examples that importance is measured on.")
    ] = 512,
    data: Annotated[Path | None, typer.Option(help="Folder of the task's data.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="The task's own options, such as patch_size=2."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Remove the least important heads, say what that did to scores and speed, and save."""
    from sparing.cli._models import require_fit
    from sparing.cli._settings import apply
    from sparing.studies._task import load_for
    from sparing.transfer.opening import open_model
    from sparing.transfer.pruning import prune

    require_new(output_dir)
    opened, pruned = open_model(model), open_model(model)
    nothing: dict[str, Any] = {}
    loaded, options = load_for(task, apply(nothing, settings or []), model, data)
    require_fit(opened, loaded, model)
    with progress_bar(quiet=as_json) as show:
        report = prune(pruned, heads, _batches(loaded, examples), step=step, on_progress=show)
        before, after = (_judged(each, loaded, model, show) for each in (opened, pruned))
    scores, latency = _scores(before, after), _latency(opened, pruned, loaded)
    save_model(pruned, model, output_dir)
    if as_json:
        facts = {"model": model, "folder": str(output_dir), "task": loaded.name}
        found = {**report.to_dict(), "scores": scores, "latency": latency}
        emit({**facts, "task_options": options, **found})
        return
    print(f"{report}\n{loaded.name}, test split, {before.count} examples:")
    print(_rows_in_words(scores), f"{_in_words(latency)}\nsaved in {output_dir}", sep="\n")


def _batches(task: Task, count: int) -> list[dict[str, Tensor]]:
    """Training examples drawn without replacement, in batches of like length."""
    import torch

    from sparing.train.evaluation import batches_by_length

    generator = torch.Generator().manual_seed(0)
    drawn = torch.randperm(len(task.train), generator=generator)[:count].tolist()
    chosen = task.train.subset(drawn)
    return [
        task.collate([chosen[index] for index in indices])
        for indices in batches_by_length(chosen, BATCH_SIZE)
    ]


def _judged(
    model: PreTrainedModel, task: Task, name: str, show: Callable[[float, str], None]
) -> Evaluation:
    from sparing.train import evaluate

    judged = evaluate(model, task, "test", on_progress=show)
    if not math.isfinite(judged.loss):
        raise CheckpointError(f"{name}: the model's answers are not finite; its weights are spoilt")
    return judged


def _scores(before: Evaluation, after: Evaluation) -> dict[str, dict[str, Any]]:
    """Each metric of both; accuracy with the interval of the paired difference over examples."""
    from sparing.measure.statistics import mean_difference

    rows: dict[str, dict[str, Any]] = {
        name: {"before": before.scores[name], "after": value}
        for name, value in after.scores.items()
    }
    if "accuracy" in rows and before.right is not None and after.right is not None:
        ours, theirs = ([float(each) for each in judged.correct] for judged in (after, before))
        difference = mean_difference(ours, theirs)
        rows["accuracy"] |= {"difference": difference.value, "interval": difference.interval}
    return rows


def _rows_in_words(rows: dict[str, dict[str, Any]]) -> str:
    lines = []
    for name, row in rows.items():
        told = f"  {name} {row['before']:.4f} before, {row['after']:.4f} after"
        if row.get("interval"):
            low, high = row["interval"]
            told += f" ({row['difference']:+.4f}, 95 % {low:+.4f} to {high:+.4f} over examples)"
        lines.append(told)
    return "\n".join(lines)


def _latency(before: PreTrainedModel, after: PreTrainedModel, task: Task) -> dict[str, Any]:
    """Both models on the same few test examples of all lengths, one at a time, on one thread."""
    from sparing.cli._models import call_of
    from sparing.measure.latency import paired_latency

    inputs = [task.collate([task.test[place]]) for place in _spread(task.test.lengths)]
    for given in inputs:
        given.pop("labels")

    def all_of(model: PreTrainedModel) -> Callable[[], object]:
        calls = [call_of(model, given) for given in inputs]
        return lambda: [call() for call in calls]

    both = {"before": all_of(before), "after": all_of(after)}
    times = paired_latency(both, baseline="before", budget_s=TIMED_SECONDS)
    ratio = times["after"].ratio
    return {
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


def _in_words(found: dict[str, Any]) -> str:
    told = f"one example at a time: {found['before_ms']:.2f} ms before, {found['after_ms']:.2f} ms "
    told += f"after, {1 / found['ratio']:.2f} times as fast"
    if found["interval"]:
        low, high = found["interval"]
        told += f" (95 % {1 / high:.2f} to {1 / low:.2f})"
    return told + f"; {found['threads']} thread(s), {found['rounds']} rounds"
