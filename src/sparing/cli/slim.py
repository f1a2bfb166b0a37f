"""``sparing slim MODEL --task TASK``: make a fine-tuned encoder faster."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from sparing.cli.shared.common import Data, Json, Overwrite, Plan, progress_bar, verb
from sparing.cli.shared.processes import SharedBy, in_several
from sparing.cli.shared.runs import finish_study, show_plan
from sparing.core.errors import UsageError

TEXTS = ("texts", "hold_out")
AGREES_BY = ("least_cosine", "threshold", "most_difference")
TARGETS = ("model", "task", *TEXTS, "speed", "floor", "agree", *AGREES_BY)
NAMED = (*TARGETS, "epochs", "seed", "keep")

EXAMPLE = "sparing slim models/digits --speed 1.5 --quick"


@verb
def run(
    model: Annotated[str, typer.Argument(help="A BERT or ViT folder, bert or vit.")],
    task: Annotated[
        str, typer.Option(help="A task; default: the one that the model was trained for.")
    ] = "",
    texts: Annotated[str, typer.Option(help="Your texts instead of a task; no labels.")] = "",
    hold_out: Annotated[str, typer.Option(help="Held-out texts: random, or last.")] = "random",
    speed: Annotated[float, typer.Option(help="Target: speed over the fastest dense form.")] = 2,
    floor: Annotated[float, typer.Option(help="Target: this share of the dense score.")] = 0.995,
    agree: Annotated[float, typer.Option(help="Certify this share of answers; 0: five.")] = 0.0,
    least_cosine: Annotated[float | None, typer.Option(help="Of equal vectors; 0.95.")] = None,
    threshold: Annotated[float | None, typer.Option(help="Of a label that is given; 0.5.")] = None,
    most_difference: Annotated[float | None, typer.Option(help="Of numbers that agree.")] = None,
    epochs: Annotated[int, typer.Option(help="Epochs of distillation; 0: the default.")] = 0,
    seed: Annotated[int, typer.Option(help="The seed of everything that is sampled.")] = 0,
    keep: Annotated[list[str] | None, typer.Option(help="any-budget: all widths too.")] = None,
    quick: Annotated[bool, typer.Option(help="Fewer inputs; wider intervals.")] = False,
    data: Data = None,
    output_dir: Annotated[Path | None, typer.Option(help="Default: runs/slim-TASK.")] = None,
    processes: SharedBy = 1,
    overwrite: Overwrite = False,
    plan: Plan = False,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="path=value, such as task_options.examples=20000."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Make an encoder faster; bound how many answers change.

    Heads, neurons and layers of a BERT or ViT are removed, and easy inputs may exit early.
    Vectors need texts alone.
    """
    task, more = _task_of(model, task, texts), tuple(keep or ())
    named = {"model": model, "task": task, "texts": texts, "hold_out": hold_out, "seed": seed}
    named |= {"speed": speed, "floor": floor, "agree": agree, "least_cosine": least_cosine}
    named |= {"threshold": threshold, "most_difference": most_difference, "keep": more}
    folder = output_dir or Path("runs") / f"slim-{Path(texts or task).stem}"
    call = _show if plan else partial(in_several, processes, "slim", _run, overwrite)
    call(_options(quick, named, epochs, settings or []), folder, data, as_json)


def _task_of(model: str, task: str, texts: str) -> str:
    """The task, by default that of the model's training; empty with texts."""
    if texts and task:
        raise UsageError("give --task or --texts, not both")
    if texts or task:
        return task
    from sparing.experiment.inputs.fit import task_for

    return task_for(model)


def _options(quick: bool, named: dict[str, Any], epochs: int, settings: list[str]) -> Any:
    from sparing.cli.shared.settings import apply
    from sparing.slim import study as slim

    budget = slim.BUDGETS["quick" if quick else "standard"]
    options = replace(budget, **named, epochs=epochs or budget.epochs)
    return apply(options, _checked(settings))


def _show(options: Any, folder: Path, data: Path | None, as_json: bool) -> None:
    from sparing.slim import STUDY

    show_plan(STUDY.plan(options, folder, data=data), as_json)


def _run(overwrite: bool, options: Any, folder: Path, data: Path | None, as_json: bool) -> None:
    """Run slim with its progress bar, and print its result."""
    from sparing.slim import STUDY

    with progress_bar(quiet=as_json) as show:
        result = STUDY.run(options, folder, data=data, on_progress=show, overwrite=overwrite)
    finish_study(result, as_json)


def _checked(settings: list[str]) -> list[str]:
    """The settings; ``UsageError`` for one that has an option of the same name."""
    for setting in settings:
        name = setting.partition("=")[0].strip()
        if name in NAMED:
            option = "the first argument" if name == "model" else f"--{name.replace('_', '-')}"
            raise UsageError(f"--set {name}: give {option} instead")
    return settings
