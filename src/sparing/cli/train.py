"""``sparing train TASK``: train a model with any attention and save it in a folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from sparing.cli.shared.common import (
    Data,
    Json,
    Overwrite,
    emit,
    progress_bar,
    seed_list,
    verb,
    words,
)
from sparing.cli.shared.processes import SharedBy, in_several
from sparing.core.errors import UsageError, nearest
from sparing.train.recipe import PRECISIONS, Precision, default_recipe

if TYPE_CHECKING:
    from sparing.experiment.training import Training

SETTABLE = ("recipe", "options", "sizes", "task_options")  # the first part of a --set path
EXAMPLE = "sparing train digits --epochs 2 --output-dir models/digits"


@verb
def run(
    task: Annotated[str, typer.Argument(help="A task, such as digits.")],
    output_dir: Annotated[Path, typer.Option(help="Folder to save the model in.")],
    model: Annotated[str, typer.Option(help="vit, bert, or a pretrained model's path.")] = "",
    mechanism: Annotated[
        str, typer.Option(help="The attention to swap in; default: the model's.")
    ] = "",
    layers: Annotated[str, typer.Option(help="Which layers, such as 0-2,5; default: all.")] = "",
    seeds: Annotated[str, typer.Option(help="How many seeds, or which: 3, or 0,1,2.")] = "1",
    epochs: Annotated[int, typer.Option(help="Epochs of training; 0: those of the recipe.")] = 0,
    distil_from: Annotated[str, typer.Option(help="A trained dense model to distil from.")] = "",
    precision: Annotated[
        str, typer.Option(help="auto, fast, float32, bfloat16 or float16.")
    ] = "auto",
    track: Annotated[str, typer.Option(help="Trainer's trackers, such as tensorboard.")] = "",
    data: Data = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="path=value, such as options.slots=32 or recipe.batch_size=32."),
    ] = None,
    processes: SharedBy = 1,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Train a model on a task, with any attention.

    The same command resumes a training that was interrupted. torchrun and accelerate may start it.
    """
    named = {"task": task, "model": model, "seeds": seed_list(seeds), "mechanism": mechanism}
    named |= {"layers": layers, "distil_from": distil_from}
    training = _training(named, settings or [], epochs, precision, track)
    _start(processes, training, output_dir, data, overwrite, as_json)


def _start(processes: int, training: Training, *given: Any) -> None:
    """Train in this process, or in several new ones."""
    batch = training.recipe.batch_size
    if processes > batch:
        raise UsageError(
            f"--processes {processes}: a batch has {batch} examples, at least one for each process"
        )
    in_several(processes, "train", _train, training, *given)


def _train(
    training: Training, output_dir: Path, data: Path | None, overwrite: bool, as_json: bool
) -> None:
    from sparing.experiment.training import train_seeds

    shown = (lambda text: None) if as_json else print
    with progress_bar(quiet=as_json) as show:
        outcome = train_seeds(
            training, output_dir, data, on_progress=show, on_swap=shown, overwrite=overwrite
        )
    (emit if as_json else _print)(outcome)


def _training(
    named: dict[str, Any], settings: list[str], epochs: int, precision: str, track: str
) -> Training:
    """The training that the options and ``--set`` describe."""
    from sparing.cli.shared.settings import apply
    from sparing.experiment.training import Training
    from sparing.models import names

    if precision not in PRECISIONS:
        raise UsageError(f"unknown precision {precision!r}{nearest(precision, PRECISIONS)}")
    usual = default_recipe(named["task"], pretrained=named["model"] not in ("", *names()))
    for setting in settings:
        first = setting.partition("=")[0].strip().partition(".")[0]
        if first not in SETTABLE:
            raise UsageError(
                f"--set {first}: only {', '.join(SETTABLE)} can be set; give the rest as options"
                f"{nearest(first, SETTABLE)}"
            )
    recipe = replace(usual, precision=cast(Precision, precision), trackers=tuple(words(track)))
    if epochs:
        recipe = replace(recipe, epochs=epochs)
    return apply(Training(recipe=recipe, **named), settings)


def _print(outcome: dict[str, Any]) -> None:
    for note in outcome["notes"]:
        print(note)
    for run_facts in outcome["seeds"]:
        scores = ", ".join(f"{name} {value:.4f}" for name, value in run_facts["scores"].items())
        print(
            f"seed {run_facts['seed']}: test {scores} of {run_facts['count']} examples, "
            f"{run_facts['train_time_s']:.1f} s, {run_facts['folder']}"
        )
        for note in run_facts["notes"]:
            print(f"  {note}")
    mean = outcome["score"]
    if mean["interval"]:
        low, high = mean["interval"]
        print(f"mean of {mean['count']} seeds: {mean['mean']:.4f} (95 % {low:.4f} to {high:.4f})")
    print(f"chance level {outcome['chance']:.4f}")
