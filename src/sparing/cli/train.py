"""``sparing train TASK``: a model with the attention of your choice, trained, in a folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from sparing.cli._shared import Json, emit, progress_bar, seed_list, verb, words
from sparing.core.errors import UsageError, nearest
from sparing.core.paths import expanded
from sparing.core.reading import parse_json
from sparing.train.recipe import PRECISIONS, Precision, Recipe, default_recipe

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from sparing.tasks import Task

STATE = "training"
BELOW = ("recipe", "options", "sizes", "task_options")  # what --set reaches
DISTANCE_BATCHES, DISTANCE_EXAMPLES = 2, 32


@verb
def run(
    task: Annotated[str, typer.Argument(help="A task, such as digits.")],
    output_dir: Annotated[Path, typer.Option(help="Where the model goes; one folder a run.")],
    model: Annotated[str, typer.Option(help="vit, bert, or a pretrained model's path.")] = "",
    mechanism: Annotated[
        str, typer.Option(help="The attention to swap in; without it the model keeps its own.")
    ] = "",
    layers: Annotated[str, typer.Option(help="Which layers, such as 0-2,5; default all.")] = "",
    seeds: Annotated[str, typer.Option(help="How many seeds, or which: 3 or 0,1,2.")] = "1",
    epochs: Annotated[int, typer.Option(help="Epochs of training; 0 takes the recipe's.")] = 0,
    distil_from: Annotated[str, typer.Option(help="A trained dense model to learn from.")] = "",
    precision: Annotated[
        str, typer.Option(help="auto, fast, float32, bfloat16 or float16.")
    ] = "auto",
    track: Annotated[str, typer.Option(help="Trainer's trackers, such as tensorboard.")] = "",
    data: Annotated[Path | None, typer.Option(help="Folder of the task's data.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="path=value, such as options.slots=32 or recipe.batch_size=32."),
    ] = None,
    overwrite: Annotated[bool, typer.Option(help="Begin again, dropping what is there.")] = False,
    as_json: Json = False,
) -> None:
    """Train a model on a task, with its attention swapped if you like; goes on where it stopped."""
    plan = _plan(task, model, settings or [], epochs, precision, track)
    chosen: dict[str, Any] = {
        "mechanism": mechanism,
        "layers": layers,
        "distil_from": distil_from,
    }
    plan = _checked(replace(plan, seeds=seed_list(seeds), **chosen))
    if overwrite:
        _require_elsewhere(plan, output_dir)
    _train(plan, output_dir, data, as_json, overwrite=overwrite)


@dataclass(frozen=True)
class Plan:
    """What is trained; the same plan in the same folder is the same run.

    ``options`` are the mechanism's, ``sizes`` the model's, ``task_options`` the task's own.
    """

    task: str
    recipe: Recipe
    model: str = ""
    mechanism: str = ""
    layers: str = ""
    distil_from: str = ""
    seeds: tuple[int, ...] = (0,)
    options: Mapping[str, Any] = field(default_factory=dict)
    sizes: Mapping[str, Any] = field(default_factory=dict)
    task_options: Mapping[str, Any] = field(default_factory=dict)


def _plan(
    task: str, model: str, settings: list[str], epochs: int, precision: str, track: str
) -> Plan:
    """The task and everything that ``--set`` may change, the options of the command line first."""
    from sparing.cli._settings import apply
    from sparing.models import names

    if precision not in PRECISIONS:
        raise UsageError(f"unknown precision {precision!r}{nearest(precision, PRECISIONS)}")
    usual = default_recipe(task, pretrained=model not in ("", *names()))
    for setting in settings:
        named = setting.partition("=")[0].strip().partition(".")[0]
        if named not in BELOW:
            raise UsageError(
                f"--set {named}: sets {', '.join(BELOW)}; the rest has options of its own"
                f"{nearest(named, BELOW)}"
            )
    recipe = replace(usual, precision=cast(Precision, precision), trackers=tuple(words(track)))
    if epochs:
        recipe = replace(recipe, epochs=epochs)
    return apply(Plan(task, recipe, model), settings)


def _checked(plan: Plan) -> Plan:
    """The plan, unless something in it would be ignored."""
    if not plan.mechanism and (plan.layers or plan.options):
        given = "--layers" if plan.layers else "--set options"
        raise UsageError(f"{given} belongs to a mechanism: name one with --mechanism")
    if plan.recipe.seed:
        raise UsageError("--set recipe.seed: give --seeds instead")
    return plan


def _train(plan: Plan, folder: Path, data: Path | None, as_json: bool, *, overwrite: bool) -> None:
    """Train every seed of the plan in its folder and say how well each does."""
    from sparing.core.writing import write_atomically
    from sparing.experiment.inputs.task import load_for
    from sparing.experiment.run import open_run
    from sparing.experiment.study import base_config
    from sparing.models import default_model

    task, options = load_for(plan.task, plan.task_options, plan.model, data)
    plan = replace(plan, model=plan.model or default_model(task), task_options=options)
    first, swapped = _build(plan, task, plan.seeds[0])
    teacher = _teacher(plan, task)
    _refuse_strangers(folder)
    identity = parse_json(json.dumps(asdict(plan), default=str))
    config = base_config("train", identity, [task], [plan.model, plan.distil_from])
    with open_run(folder / STATE, config, overwrite=overwrite):
        if overwrite:
            _drop_trainings(folder)
        if swapped and not as_json:
            print(swapped["text"])
        runs = []
        with progress_bar(quiet=as_json) as show:
            for number, seed in enumerate(plan.seeds):
                built = first if number == 0 else _build(plan, task, seed)[0]
                place = folder if len(plan.seeds) == 1 else folder / f"seed-{seed}"
                tell = _part(show, number, len(plan.seeds), seed)
                runs.append(_train_one(built, task, plan.recipe, seed, place, teacher, tell))
        outcome = _outcome(plan, task, folder, swapped, runs)
        write_atomically(folder / STATE / "outcome.json", json.dumps(outcome, indent=2) + "\n")
    if as_json:
        emit(outcome)
    else:
        _print(outcome)


def _require_elsewhere(plan: Plan, folder: Path) -> None:
    """Raise ``UsageError`` where overwriting would drop the model that is begun or learned from."""
    for name in (plan.model, plan.distil_from):
        place = expanded(name).resolve()
        if name and place.is_dir() and place.is_relative_to(expanded(folder).resolve()):
            raise UsageError(f"--overwrite would drop {name}, which this training begins from")


def _drop_trainings(folder: Path) -> None:
    """Remove every training here: a model that another plan left would be taken for this one's."""
    from sparing.train.trainer import drop_training

    for place in (folder, *folder.glob("seed-*")):
        drop_training(place)


def _refuse_strangers(folder: Path) -> None:
    """Raise ``UsageError`` for a folder with something in it that no training put there."""
    if (folder / STATE / "config.json").exists() or not folder.is_dir():
        return
    found = sorted(
        path.name
        for path in folder.iterdir()
        if path.name != STATE and not path.name.startswith(".")
    )
    if found:
        raise UsageError(f"{folder} is not empty and holds no training (found {found[0]})")


def _build(plan: Plan, task: Task, seed: int) -> tuple[PreTrainedModel, dict[str, Any]]:
    """The model of one seed, and what its swap did: the report and the distance from before."""
    from sparing.cli._models import saved_entry
    from sparing.core.catalogue import allow, mechanism_class
    from sparing.core.options import option_defaults
    from sparing.experiment.arms import fitted_options
    from sparing.experiment.inputs.fit import require_fit, require_reads
    from sparing.models import build_model
    from sparing.train.room import fitting_batch, require_room
    from sparing.transfer.opening import open_model
    from sparing.transfer.swap import swap

    if saved_entry(plan.model):
        if plan.sizes:
            raise UsageError(f"a pretrained model has no sizes to set, got {', '.join(plan.sizes)}")
        model = open_model(plan.model)
        require_fit(model, task, plan.model)
    else:
        model = build_model(plan.model, task, seed=seed, **plan.sizes)
        require_reads(model, task, plan.model)
    if not plan.mechanism:
        return model, {}
    allow(plan.mechanism)
    options = {**fitted_options(plan.mechanism, task.tokens), **plan.options}
    if "seed" in option_defaults(mechanism_class(plan.mechanism)):
        options.setdefault("seed", seed)
    report = swap(model, plan.mechanism, plan.layers or None, tokens=task.tokens, **options)
    require_room(model, task, plan.recipe)
    most = fitting_batch(model, task, task.validation, DISTANCE_EXAMPLES)
    distance = report.distance(_first_batches(task, most))
    text = f"{report}\nbefore training:\n{distance}"
    return model, {"text": text, "report": report.to_dict(), "distance": asdict(distance)}


def _first_batches(task: Task, most: int) -> list[dict[str, Any]]:
    """A few validation batches without labels, of so many examples at most."""
    batches = []
    for number in range(DISTANCE_BATCHES):
        start = number * most
        stop = min(start + most, len(task.validation))
        if start < stop:
            batch = task.collate([task.validation[index] for index in range(start, stop)])
            batches.append({name: value for name, value in batch.items() if name != "labels"})
    return batches


def _teacher(plan: Plan, task: Task) -> PreTrainedModel | None:
    from sparing.experiment.inputs.fit import require_fit
    from sparing.transfer.opening import open_model

    if not plan.distil_from:
        return None
    teacher = open_model(plan.distil_from)
    require_fit(teacher, task, plan.distil_from)
    return teacher


def _part(show: Any, number: int, count: int, seed: int) -> Any:
    """Progress of one seed as a part of the whole."""

    def tell(fraction: float, text: str) -> None:
        show((number + fraction) / count, text if count == 1 else f"seed {seed}: {text}")

    return tell


def _train_one(
    model: PreTrainedModel,
    task: Task,
    recipe: Recipe,
    seed: int,
    place: Path,
    teacher: PreTrainedModel | None,
    tell: Any,
) -> dict[str, Any]:
    """Train and judge one seed; a finished one is read back."""
    from sparing.train import evaluate, train

    result = train(
        model,
        task,
        replace(recipe, seed=seed),
        output_dir=place,
        teacher=teacher,
        on_progress=tell,
    )
    judged = evaluate(model, task)
    facts = {name: value for name, value in asdict(result).items() if name != "curve"}
    return {
        "seed": seed,
        "folder": str(place),
        "score": judged.score,
        "scores": judged.scores,
        "accuracy": None if judged.right is None else judged.accuracy,
        "count": judged.count,
        "params": model.num_parameters(),
        **facts,
    }


def _outcome(
    plan: Plan, task: Task, folder: Path, swapped: dict[str, Any], runs: list[dict[str, Any]]
) -> dict[str, Any]:
    """Everything a reader of ``--json`` gets."""
    step = 1 / max(1, len(task.test))
    mean = _mean([run["score"] for run in runs], step)
    right = [run["accuracy"] for run in runs if run["accuracy"] is not None]
    return {
        "task": task.name,
        "model": plan.model,
        "mechanism": plan.mechanism or None,
        "folder": str(folder),
        "metric": task.metric,
        "chance": task.chance,
        "notes": list(task.notes),
        "swap": swapped.get("report"),
        "distance_before_training": swapped.get("distance"),
        "seeds": runs,
        "score": mean,
        "accuracy": _mean(right, step) if right else None,
    }


def _mean(values: list[float], step: float) -> dict[str, Any]:
    """The mean over seeds with its interval; seeds are no more alike than by steps of a score."""
    from sparing.measure.statistics import mean_difference

    mean = mean_difference(values, [0.0] * len(values), resolution=step)
    return {"mean": mean.value, "interval": mean.interval, "count": mean.count}


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
