"""``sparing slim MODEL --task TASK``: a faster form of a fine-tuned encoder, with a guarantee."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from sparing.cli._finish import finish_study
from sparing.cli._plan import show_plan
from sparing.cli._shared import Json, progress_bar, verb
from sparing.core.errors import UsageError

OWN = ("model", "task", "speed", "floor", "epsilon", "epochs", "seed")  # said outside --set


@verb
def run(
    model: Annotated[str, typer.Argument(help="A BERT or ViT classifier's folder, bert or vit.")],
    task: Annotated[
        str, typer.Option(help="A task, such as sst2; without it what the model was trained for.")
    ] = "",
    speed: Annotated[float, typer.Option(help="Wanted: so many times the fastest dense form.")] = 2,
    floor: Annotated[float, typer.Option(help="Wanted: this share of the dense score.")] = 0.995,
    epsilon: Annotated[
        float, typer.Option(help="Wanted: at most this share of answers differs; 0: what comes.")
    ] = 0.0,
    epochs: Annotated[int, typer.Option(help="Epochs of distillation; 0 takes the default.")] = 0,
    seed: Annotated[int, typer.Option(help="Decides everything that is drawn.")] = 0,
    quick: Annotated[bool, typer.Option(help="Few epochs and inputs; says less.")] = False,
    data: Annotated[Path | None, typer.Option(help="Folder of the task's data.")] = None,
    output_dir: Annotated[Path | None, typer.Option(help="Default: runs/slim-TASK.")] = None,
    overwrite: Annotated[bool, typer.Option(help="Begin again, dropping what is there.")] = False,
    plan: Annotated[
        bool, typer.Option("--plan", help="Show the steps and about how long they take; run none.")
    ] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="path=value, such as task_options.examples=20000."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Make a classifier faster: cut, distil, choose by measured speed, calibrate, verify, save."""
    task = task or _task_of(model)
    wanted = {"model": model, "task": task, "speed": speed, "floor": floor, "epsilon": epsilon}
    options = _options(quick, {**wanted, "seed": seed}, epochs, settings or [])
    folder = output_dir or Path("runs") / f"slim-{Path(task).name}"
    if plan:
        _show(options, folder, data, as_json)
    else:
        _run(options, folder, data, overwrite, as_json)


def _task_of(model: str) -> str:
    from sparing.experiment.inputs.fit import task_for

    return task_for(model)


def _options(quick: bool, wanted: dict[str, Any], epochs: int, settings: list[str]) -> Any:
    from sparing.cli._settings import apply
    from sparing.slim import study as slim

    budget = slim.BUDGETS["quick" if quick else "standard"]
    options = replace(budget, **wanted, epochs=epochs or budget.epochs)
    return apply(options, _checked(settings))


def _show(options: Any, folder: Path, data: Path | None, as_json: bool) -> None:
    from sparing.slim import STUDY

    show_plan(STUDY.plan(options, folder, data=data), as_json)


def _run(options: Any, folder: Path, data: Path | None, overwrite: bool, as_json: bool) -> None:
    """Slim, with its progress and its end."""
    from sparing.slim import STUDY

    with progress_bar(quiet=as_json) as show:
        result = STUDY.run(options, folder, data=data, on_progress=show, overwrite=overwrite)
    finish_study(result, as_json)


def _checked(settings: list[str]) -> list[str]:
    """The settings, unless one would silently win over an option of the same name."""
    for setting in settings:
        name = setting.partition("=")[0].strip()
        if name in OWN:
            own = "the first argument" if name == "model" else f"--{name}"
            raise UsageError(f"--set {name}: give {own} instead")
    return settings
