"""``sparing evaluate PATH``: how accurate a saved model is, with its interval."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from sparing.cli.shared.common import Data, Json, TaskSettings, emit, progress_bar, verb
from sparing.core.errors import UsageError

EXAMPLE = "sparing evaluate models/digits"


@verb
def run(
    path: Annotated[str, typer.Argument(help="The folder of a saved model, or a hub name.")],
    task: Annotated[
        str, typer.Option(help="The task; default: the one that the model was trained for.")
    ] = "",
    split: Annotated[str, typer.Option(help="test, validation or train.")] = "test",
    data: Data = None,
    settings: TaskSettings = None,
    as_json: Json = False,
) -> None:
    """Evaluate a saved model on a task: metrics with intervals.

    An embedding model scores pairs of texts by their cosine.
    """
    from sparing.agree.similarity import evaluate_vectors, gives_vectors, require_pairs
    from sparing.cli.shared.settings import apply
    from sparing.experiment.evaluation import evaluate_fitting
    from sparing.experiment.inputs.fit import require_head
    from sparing.experiment.inputs.task import load_for, task_of
    from sparing.transfer.opening import open_model

    options = apply(dict[str, Any](), settings or [])
    model = None if gives_vectors(path) else open_model(path)
    if model is None:
        require_pairs(task)
    else:
        require_head(model, path)
    task = task or task_of(path)
    if not task:
        raise UsageError(f"{path} names no task that it was trained for: give --task")
    loaded = load_for(task, options, path, data)
    with progress_bar(quiet=as_json) as show:
        if model is None:
            scores = evaluate_vectors(path, loaded, split, show)
        else:
            scores = evaluate_fitting(model, path, loaded, split, show, (task, path))
    if as_json:
        emit(scores.to_dict())
    else:
        print(scores)
