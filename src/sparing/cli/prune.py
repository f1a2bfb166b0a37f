"""``sparing prune MODEL --task TASK --heads SHARE``: remove the least important heads.

With ``--epochs-between`` heads are removed in stages, and the model is trained after every stage.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from sparing.cli.shared.common import RESUMES, Data, Json, TaskSettings, emit, progress_bar, verb
from sparing.core.errors import UsageError, nearest
from sparing.export.saving import require_new, save_model

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from sparing.tasks import Task
    from sparing.train import Recipe
    from sparing.train.recipe import Precision
    from sparing.transfer.pruning import PruneReport

STAGES = 5

EXAMPLE = "sparing prune models/digits --task digits --heads 0.5 --output-dir models/pruned"


@verb
def run(
    model: Annotated[str, typer.Argument(help="The folder of a fine-tuned model, or a hub name.")],
    task: Annotated[str, typer.Option(help="The task that the model was fine-tuned for.")],
    heads: Annotated[float, typer.Option(help="The share of heads to remove, such as 0.3.")],
    output_dir: Annotated[Path, typer.Option(help="A new folder for the pruned model.")],
    step: Annotated[float, typer.Option(help="The share removed between two rankings.")] = 0.1,
    examples: Annotated[
        int, typer.Option(min=1, help="Training examples to measure importance on.")
    ] = 512,
    steps: Annotated[
        int | None,
        typer.Option(min=1, help="Stages of equal shares, with training between; default: 5."),
    ] = None,
    epochs_between: Annotated[
        int, typer.Option(min=0, help="Epochs of training after a stage; 0: no training.")
    ] = 0,
    learning_rate: Annotated[
        float | None,
        typer.Option(min=0, help="Its learning rate; default: the task's."),
    ] = None,
    precision: Annotated[
        str,
        typer.Option(help="Its precision: auto, fast, float32, bfloat16 or float16."),
    ] = "",
    data: Data = None,
    settings: TaskSettings = None,
    as_json: Json = False,
) -> None:
    """Remove the least important heads of a fine-tuned model.

    Prints scores and speed before and after, and saves the model. The same command resumes
    stages that were interrupted.
    """
    require_new(output_dir)
    if not epochs_between:
        _require_no_training(steps=steps, learning_rate=learning_rate, precision=precision)
    recipe = _recipe(task, epochs_between, learning_rate, precision or "auto")
    cut = _Cut(heads, step, examples, steps or STAGES, recipe)
    _prune(model, task, cut, output_dir, data, settings or [], as_json)


def _require_no_training(**options: object) -> None:
    """Raise ``UsageError`` for an option of a training that does not happen."""
    for name, value in options.items():
        if value not in (None, ""):
            option = name.replace("_", "-")
            raise UsageError(f"--{option} needs training between stages: add --epochs-between 1")


@dataclass(frozen=True)
class _Cut:
    """How many heads are removed, and how."""

    heads: float
    step: float
    examples: int
    stages: int
    recipe: Recipe | None


def _prune(
    model: str,
    task: str,
    cut: _Cut,
    folder: Path,
    data: Path | None,
    settings: Sequence[str],
    as_json: bool,
) -> None:
    from sparing.cli.shared.settings import apply
    from sparing.experiment.inputs.fit import require_fit, require_head
    from sparing.experiment.inputs.task import load_for
    from sparing.experiment.measuring.before_after import evaluated, latency_beside, scores_beside
    from sparing.transfer.gradual import drop_pruning
    from sparing.transfer.opening import open_model

    opened, pruned = open_model(model), open_model(model)
    require_head(opened, model)
    loaded, options = load_for(task, apply(dict[str, Any](), settings), model, data)
    require_fit(opened, loaded, model)
    stages = folder.with_name(f"{folder.name}.stages")
    with progress_bar(quiet=as_json) as show:
        report = _removed(pruned, loaded, cut, stages, show)
        before, after = (evaluated(network, loaded, model, show) for network in (opened, pruned))
    scores, latency = scores_beside(before, after), latency_beside(opened, pruned, loaded)
    save_model(pruned, model, folder)
    if cut.recipe is not None:
        drop_pruning(stages)
    if as_json:
        facts = {"model": model, "folder": str(folder), "task": loaded.name}
        results = {**report.to_dict(), "scores": scores, "latency": latency}
        emit({**facts, "task_options": options, **results})
        return
    print(report, *_table(report), sep="\n")
    print(f"{loaded.name}, test split, {before.count} examples:", _rows_in_words(scores), sep="\n")
    print(f"{_in_words(latency)}\nsaved in {folder}")


def _removed(
    model: PreTrainedModel, task: Task, cut: _Cut, stages: Path, show: Callable[[float, str], None]
) -> PruneReport:
    """Remove the heads, at once or in stages with training between them."""
    from sparing.transfer.gradual import labelled_batches, prune_gradually
    from sparing.transfer.pruning import prune

    if cut.recipe is None:
        batches = labelled_batches(task, cut.examples)
        return prune(model, cut.heads, batches, step=cut.step, on_progress=show)
    try:
        return prune_gradually(
            model,
            task,
            cut.heads,
            recipe=cut.recipe,
            stages=cut.stages,
            folder=stages,
            examples=cut.examples,
            step=cut.step,
            on_progress=show,
        )
    except KeyboardInterrupt as stop:
        stop.args = (*stop.args, RESUMES)
        raise


def _recipe(task: str, epochs: int, rate: float | None, precision: str) -> Recipe | None:
    """How the model is trained after a stage; None for no training."""
    from sparing.train.recipe import PRECISIONS, default_recipe

    if precision not in PRECISIONS:
        raise UsageError(f"unknown --precision {precision!r}{nearest(precision, PRECISIONS)}")
    if not epochs:
        return None
    recipe = default_recipe(task, pretrained=True)
    rate, chosen = rate or recipe.learning_rate, cast("Precision", precision)
    return replace(recipe, epochs=epochs, learning_rate=rate, precision=chosen, patience=None)


def _table(report: PruneReport) -> list[str]:
    """The score by number of heads, for heads removed in stages."""
    table = getattr(report, "table", None)
    return [] if table is None else [table()]


def _rows_in_words(rows: dict[str, dict[str, Any]]) -> str:
    lines = []
    for name, row in rows.items():
        line = f"  {name} {row['before']:.4f} before, {row['after']:.4f} after"
        if row.get("interval"):
            low, high = row["interval"]
            line += f" ({row['difference']:+.4f}, 95 % {low:+.4f} to {high:+.4f} over examples)"
        lines.append(line)
    return "\n".join(lines)


def _in_words(latency: dict[str, Any]) -> str:
    from sparing.measure.load import busy_words

    before, after = latency["before_ms"], latency["after_ms"]
    line = f"one example at a time: {before:.2f} ms before, {after:.2f} ms after"
    if latency["disturbance"]:
        return f"{busy_words(latency['disturbance'])}\n{line}"
    line += f", {1 / latency['ratio']:.2f} times as fast"
    if latency["interval"]:
        low, high = latency["interval"]
        line += f" (95 % {1 / high:.2f} to {1 / low:.2f})"
    return line + f"; {latency['threads']} thread(s), {latency['rounds']} rounds"
