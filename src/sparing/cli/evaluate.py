"""``sparing evaluate PATH``: how accurate a saved model is, with its interval."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import NormalDist
from typing import Annotated, Any

import typer

from sparing.cli._shared import Json, emit, progress_bar, verb
from sparing.core.errors import CheckpointError


@verb
def run(
    path: Annotated[str, typer.Argument(help="The folder of a saved model, or a hub name.")],
    task: Annotated[str, typer.Option(help="The task to judge it on.")],
    split: Annotated[str, typer.Option(help="test, validation or train.")] = "test",
    data: Annotated[Path | None, typer.Option(help="Folder of the task's data.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="The task's own options, such as patch_size=2."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Judge a saved model on a task: accuracy with its interval, and on how many examples."""
    from sparing.cli._models import require_fit
    from sparing.cli._settings import apply
    from sparing.cli._task import load_for
    from sparing.train import evaluate
    from sparing.transfer.opening import open_model

    given: dict[str, Any] = {}
    model = open_model(path)
    loaded, options = load_for(task, apply(given, settings or []), path, data)
    require_fit(model, loaded, path)
    with progress_bar(quiet=as_json) as show:
        judged = evaluate(model, loaded, split, on_progress=show)
    if not math.isfinite(judged.loss):
        raise CheckpointError(f"{path}: the model's answers are not finite; its weights are spoilt")
    right = sum(judged.correct)
    low, high = wilson(right, judged.count)
    if as_json:
        facts = {"model": path, "task": loaded.name, "task_options": options, "split": split}
        accuracy = {"value": judged.accuracy, "interval": [low, high], "count": judged.count}
        emit({**facts, "accuracy": accuracy, "loss": judged.loss, "chance": loaded.chance})
        return
    print(f"{loaded.name}, {split} split, {right} of {judged.count} right")
    print(f"accuracy {judged.accuracy:.4f} (95 % {low:.4f} to {high:.4f}), loss {judged.loss:.4f}")
    print(f"chance level {loaded.chance:.4f}")


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
