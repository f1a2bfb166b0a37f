"""Train a model on a task with several seeds and evaluate each: the command ``train``."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparing.core.errors import UsageError
from sparing.core.paths import expanded
from sparing.core.progress import Progress
from sparing.core.ranks import first, first_before_others, is_first
from sparing.core.reading import parse_json, read_plain
from sparing.core.writing import write_atomically
from sparing.experiment.inputs.fit import require_fit, require_reads
from sparing.experiment.inputs.task import load_for
from sparing.experiment.run import TRAIN, open_run
from sparing.experiment.study import base_config
from sparing.models import build_model, default_model
from sparing.train import evaluate, train
from sparing.train.processes import errors_shared, join
from sparing.train.recipe import Recipe
from sparing.train.room import on_cpu

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from sparing.tasks import Task

STATE = "training"
DISTANCE_BATCHES, DISTANCE_EXAMPLES = 2, 32


@dataclass(frozen=True)
class Training:
    """What is trained; the same training in the same folder is the same run.

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

    def __post_init__(self) -> None:
        """Refuse what would be ignored."""
        if not self.mechanism and (self.layers or self.options):
            given = "--layers" if self.layers else "--set options"
            raise UsageError(f"{given} belongs to a mechanism: name one with --mechanism")
        if self.recipe.seed:
            raise UsageError("--set recipe.seed: give --seeds instead")


def train_seeds(
    training: Training,
    folder: Path,
    data: Path | None = None,
    *,
    on_progress: Progress = lambda fraction, text: None,
    on_swap: Callable[[str], None] = lambda text: None,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Train and evaluate every seed in its folder; an interrupted training goes on.

    ``on_swap`` receives the report of a swap before the first training. Under torchrun or
    accelerate every process calls this; process 0 writes, reports and evaluates. Raises
    ``UsageError`` for a folder that holds something else.
    """
    with errors_shared():
        join(cpu=on_cpu(training.recipe))
        return _train_seeds(training, folder, data, on_progress, on_swap, overwrite)


def _train_seeds(
    training: Training,
    folder: Path,
    data: Path | None,
    on_progress: Progress,
    on_swap: Callable[[str], None],
    overwrite: bool,
) -> dict[str, Any]:
    if overwrite:
        _require_elsewhere(training, folder)
    with first_before_others():  # it may write prepared data
        task, options = load_for(training.task, training.task_options, training.model, data)
    model = training.model or default_model(task)
    training = replace(training, model=model, task_options=options)
    built, swapped = _build(training, task, training.seeds[0])
    teacher = _teacher(training, task)
    first(lambda: _refuse_strangers(folder))
    identity = parse_json(json.dumps(asdict(training), default=str))
    config = base_config(TRAIN, identity, [task], [training.model, training.distil_from])
    with ExitStack() as opened:
        first(lambda: _open(opened, folder, config, overwrite))
        if swapped and is_first():
            on_swap(swapped["text"])
        runs = []
        for number, seed in enumerate(training.seeds):
            if number:
                built = _build(training, task, seed)[0]
            seed_dir = folder if len(training.seeds) == 1 else folder / f"seed-{seed}"
            tell = _part(on_progress, number, len(training.seeds), seed)
            runs.append(_train_one(built, task, training.recipe, seed, seed_dir, teacher, tell))
        outcome = _outcome(training, task, folder, swapped, runs)
        text = json.dumps(outcome, indent=2) + "\n"
        first(lambda: write_atomically(folder / STATE / "outcome.json", text))
    return outcome


def _open(opened: ExitStack, folder: Path, config: dict[str, Any], overwrite: bool) -> None:
    """Open the run of a training until ``opened`` is closed."""
    opened.enter_context(open_run(folder / STATE, config, overwrite=overwrite))
    if overwrite:
        _drop_trainings(folder)


def _require_elsewhere(training: Training, folder: Path) -> None:
    """Raise ``UsageError`` where overwriting would remove the first model or the teacher."""
    for name in (training.model, training.distil_from):
        model_dir = expanded(name).resolve()
        if name and model_dir.is_dir() and model_dir.is_relative_to(expanded(folder).resolve()):
            raise UsageError(f"--overwrite would drop {name}, which this training begins from")


def _drop_trainings(folder: Path) -> None:
    """Remove every training here: a model of another plan would count as this one's."""
    from sparing.train.trainer import drop_training

    for training_dir in (folder, *folder.glob("seed-*")):
        drop_training(training_dir)


def _refuse_strangers(folder: Path) -> None:
    """Raise ``UsageError`` for a folder with a file that no training wrote."""
    if (folder / STATE / "config.json").exists() or not folder.is_dir():
        return
    strangers = sorted(
        path.name
        for path in folder.iterdir()
        if path.name != STATE and not path.name.startswith(".")
    )
    if strangers:
        raise UsageError(f"{folder} is not empty and holds no training (found {strangers[0]})")


def _is_swapped(name: str) -> bool:
    """Whether a model's folder records a swap."""
    try:
        content = parse_json(read_plain(expanded(name) / "config.json"), finite=False)
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and bool(content.get("sparing"))


def _build(training: Training, task: Task, seed: int) -> tuple[PreTrainedModel, dict[str, Any]]:
    """The model of one seed, and what its swap did: the report and the distance from before."""
    from sparing.core.catalogue import allow, mechanism_class
    from sparing.core.options import option_defaults
    from sparing.experiment.arms import fitted_options
    from sparing.train.room import fitting_batch, require_room
    from sparing.transfer.opening import open_model
    from sparing.transfer.swap import swap

    if _is_swapped(training.model):
        if training.sizes:
            raise UsageError(
                f"a pretrained model has no sizes to set; got {', '.join(training.sizes)}"
            )
        model = open_model(training.model)
        require_fit(model, task, training.model)
    else:
        model = build_model(training.model, task, seed=seed, **training.sizes)
        require_reads(model, task, training.model)
    if not training.mechanism:
        return model, {}
    allow(training.mechanism)
    options = {**fitted_options(training.mechanism, task.tokens), **training.options}
    if "seed" in option_defaults(mechanism_class(training.mechanism)):
        options.setdefault("seed", seed)
    report = swap(model, training.mechanism, training.layers or None, tokens=task.tokens, **options)
    require_room(model, task, training.recipe)
    most = fitting_batch(model, task, task.validation, DISTANCE_EXAMPLES)
    distance = report.distance(_first_batches(task, most))
    text = f"{report}\nbefore training:\n{distance}"
    return model, {"text": text, "report": report.to_dict(), "distance": asdict(distance)}


def _first_batches(task: Task, most: int) -> list[dict[str, Any]]:
    """A few validation batches without labels, of at most ``most`` examples."""
    batches = []
    for number in range(DISTANCE_BATCHES):
        start = number * most
        stop = min(start + most, len(task.validation))
        if start < stop:
            batch = task.collate([task.validation[index] for index in range(start, stop)])
            batches.append({name: value for name, value in batch.items() if name != "labels"})
    return batches


def _teacher(training: Training, task: Task) -> PreTrainedModel | None:
    from sparing.transfer.opening import open_model

    if not training.distil_from:
        return None
    teacher = open_model(training.distil_from)
    require_fit(teacher, task, training.distil_from)
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
    output_dir: Path,
    teacher: PreTrainedModel | None,
    tell: Any,
) -> dict[str, Any]:
    """Train and evaluate one seed; a finished one is read back."""
    result = train(
        model,
        task,
        replace(recipe, seed=seed),
        output_dir=output_dir,
        teacher=teacher,
        on_progress=tell,
    )
    evaluation = first(lambda: replace(evaluate(model, task), outputs=None, truth=None))
    facts = {name: value for name, value in asdict(result).items() if name != "curve"}
    return {
        "seed": seed,
        "folder": str(output_dir),
        "score": evaluation.score,
        "scores": evaluation.scores,
        "accuracy": None if evaluation.right is None else evaluation.accuracy,
        "count": evaluation.count,
        "params": model.num_parameters(),
        **facts,
    }


def _outcome(
    training: Training,
    task: Task,
    folder: Path,
    swapped: dict[str, Any],
    runs: list[dict[str, Any]],
) -> dict[str, Any]:
    """Everything a reader of ``--json`` gets."""
    step = 1 / max(1, len(task.test))
    mean = mean_over_seeds([run["score"] for run in runs], step)
    right = [run["accuracy"] for run in runs if run["accuracy"] is not None]
    return {
        "task": task.name,
        "model": training.model,
        "mechanism": training.mechanism or None,
        "folder": str(folder),
        "metric": task.metric,
        "chance": task.chance,
        "notes": list(task.notes),
        "swap": swapped.get("report"),
        "distance_before_training": swapped.get("distance"),
        "seeds": runs,
        "score": mean,
        "accuracy": mean_over_seeds(right, step) if right else None,
    }


def mean_over_seeds(values: list[float], step: float) -> dict[str, Any]:
    """The mean over seeds with its interval, never finer than one step of a score."""
    from sparing.measure.statistics import mean_difference

    mean = mean_difference(values, [0.0] * len(values), resolution=step)
    return {"mean": mean.value, "interval": mean.interval, "count": mean.count}
