"""``sparing evaluate PATH``: how accurate a saved model is, with its interval."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from sparing.cli._shared import Json, emit, progress_bar, verb
from sparing.core.errors import UsageError


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
    from sparing.experiment.evaluation import evaluate_fitting
    from sparing.experiment.inputs.fit import require_head
    from sparing.experiment.inputs.task import load_for, task_of
    from sparing.transfer.opening import open_model

    given: dict[str, Any] = {}
    model = open_model(path)
    require_head(model, path)
    task = task or task_of(path)
    if not task:
        raise UsageError(f"{path} does not say what it was trained for: name a --task")
    loaded = load_for(task, apply(given, settings or []), path, data)
    with progress_bar(quiet=as_json) as show:
        scores = evaluate_fitting(model, path, loaded, split, show, (task, path))
    if as_json:
        emit(scores.to_dict())
    else:
        print(scores)
