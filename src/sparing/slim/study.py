"""Make a fine-tuned encoder faster: cut, distil, choose by measured speed, and bound the changes.

``sparing slim MODEL --task TASK`` runs it: minutes for a toy model, an hour or more on one core for
a small BERT with thousands of texts. Expected on SST-2 with a six-layer MiniLM: about half the time
of the fastest dense form, at a loss of at most half a point.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from sparing.core.errors import UsageError
from sparing.core.record import Record
from sparing.experiment.cells.expected import Seconds, of_slim, weighted
from sparing.experiment.claims import Claim, Estimate, decide, of_record
from sparing.experiment.conduct import Experiment
from sparing.experiment.inputs.fit import refuse_others, require_openable_model
from sparing.experiment.inputs.task import load_for
from sparing.experiment.plan import plan_by_kind
from sparing.experiment.records import RecordTable
from sparing.experiment.run import Cell, Failure, Run
from sparing.experiment.study import base_config, plain
from sparing.measure.calibration import examples_needed
from sparing.slim.choices import kept_share
from sparing.slim.engines import Engines, has_onnx
from sparing.slim.int8 import int8_cells
from sparing.slim.memory import memory_of
from sparing.slim.models import Models, recipes
from sparing.slim.options import BUDGETS as BUDGETS
from sparing.slim.options import Options, with_fewer
from sparing.slim.saving import refuse_model_folder, save
from sparing.slim.search.choose import choose_plan, survey_plans
from sparing.slim.search.fine_tune import fine_tune
from sparing.slim.steps import DENSE, OURS, Steps
from sparing.slim.verify import (
    answer_all,
    calibrate_plan,
    early_exits,
    measure_front,
    score_baseline,
    train_static,
    verify_plan,
)
from sparing.tasks import Task
from sparing.tasks.shared.unlabelled import with_unlabelled
from sparing.train import TrainResult


def prepare(options: Options, folder: Path, data: Path | None = None) -> Experiment:
    """The steps with these options; the user's model is read, never written.

    Raises ``UsageError`` for unknown names, a model that does not fit the task, and a folder that
    holds the model itself.
    """
    config, steps = _begun(options, folder, data)

    def finish(opened: Run, failures: Sequence[Failure]) -> None:
        if not failures:
            save(steps, opened, options.model)
            steps.engines.drop()

    return Experiment(
        "slim",
        config,
        lambda opened: _cells_of(steps, options),
        lambda records: decide(claims_of(options), RecordTable(records)),
        finish=finish,
        estimate=partial(plan_by_kind, parts=3),
        notes=tuple(filter(None, [steps.models.new_head])),
    )


def _begun(options: Options, folder: Path, data: Path | None) -> tuple[dict[str, Any], Steps]:
    """The run's configuration and its steps."""
    refuse_model_folder(options.model, folder)
    require_openable_model(options.model)
    refuse_others(options.model)
    task, resolved = load_for(options.task, options.task_options, options.model, data)
    if task.answer != "class":
        answer = "a number" if task.answer == "number" else "a segment of its text"
        raise UsageError(
            f"task {task.name} has {answer} as its answer; slim needs a task with classes"
        )
    task = with_fewer(task, options.train_tokens)
    _require_held_out(task, options)
    identity = {**asdict(options), "task_options": resolved}
    steps = steps_of(options, task, folder, data)
    steps.models.require_source()
    config = base_config("slim", plain(identity), [task], [options.model])
    config |= _described(options, steps, folder)
    return config, steps


def steps_of(options: Options, task: Task, folder: Path, data: Path | None = None) -> Steps:
    """The steps of a run in this folder."""
    dense, ours = recipes(
        options.task,
        options.model,
        options.dense_epochs,
        options.epochs,
        options.seed,
        options.batch_size,
    )
    dense, ours = (replace(recipe, precision=options.precision) for recipe in (dense, ours))
    models = Models(
        source=options.model,
        task=task,
        folder=folder,
        dense_recipe=dense,
        recipe=ours,
        draw=options.draw(task),
        seed=options.seed,
        head_dims=options.head_dims,
        choose_on=options.choose_on,
        attention_dropout=options.attention_dropout,
        fixed_width_epochs=options.fixed_width_epochs,
        taught=_taught(options, task, data),
    )
    engines = Engines(task, folder / "engines", options.thread_count, options.compiled)
    return Steps(models, engines, options)


def _taught(options: Options, task: Task, data: Path | None) -> Task:
    """The task with the texts without labels that slim is also distilled on."""
    most, seed = options.unlabelled_examples, options.seed
    return with_unlabelled(task, options.unlabelled, most=most, seed=seed, data=data)


def _cells_of(steps: Steps, options: Options) -> list[Cell]:
    models = steps.models

    def trained(train: Callable[[], TrainResult | None], arm: str) -> Callable[[], list[Record]]:
        return lambda: _training_records(train(), arm)

    longer = Cell("dense-continued", trained(models.continue_dense, "dense continued"), weight=6.0)
    cells = [
        Cell("dense", trained(models.train_dense, DENSE), weight=6.0),
        *([longer] if options.continue_dense else []),
        Cell("distil", trained(models.train_adaptive, OURS), weight=10.0),
        Cell("baseline", partial(score_baseline, steps)),
        Cell("survey", partial(survey_plans, steps)),
        Cell("choose", partial(choose_plan, steps)),
        *_later_cells(steps, options),
    ]
    return weighted(cells, _expected(steps, options))


def _expected(steps: Steps, options: Options) -> Seconds:
    """How long the steps may take."""
    models = steps.models
    epochs = {
        "dense": 0 if models.fine_tuned else models.dense_recipe.epochs,
        "distil": models.recipe.epochs,
        "fixed-width": models.fixed_width_epochs,
        "int8": options.int8_epochs,
    }
    return of_slim(
        models.shape,
        steps.task,
        epochs=epochs,
        timed=min(options.timed_examples, len(steps.task.test)),
        plans=len(options.variants(steps.task)),
        front=options.front_plans,
    )


def _later_cells(steps: Steps, options: Options) -> list[Cell]:
    """The cells after the choice of a plan."""
    verify = {batch: partial(verify_plan, steps, batch) for batch in options.batches}
    memory = partial(memory_of, steps, max(options.batches))
    fixed_width = Cell("fixed-width", partial(fine_tune, steps), weight=2.0)
    static = Cell("static", partial(train_static, steps), weight=8.0)
    return [
        *([fixed_width] if options.fixed_width_epochs else []),
        Cell("calibrate", partial(calibrate_plan, steps)),
        *([static] if options.static_control else []),
        *(Cell(f"verify/batch-{batch}", work) for batch, work in verify.items()),
        Cell("exits", partial(early_exits, steps)),
        *([Cell("front", partial(measure_front, steps))] if options.front_plans else []),
        *(int8_cells(steps) if options.int8 and has_onnx() else []),
        Cell("answers", partial(answer_all, steps)),
        *([Cell("memory", memory)] if options.memory else []),
    ]


def _require_held_out(task: Task, options: Options) -> None:
    """Raise ``UsageError`` unless there are enough rows to choose and to calibrate on."""
    if options.choose_on in ("train", "test"):
        raise UsageError(
            f"choose_on={options.choose_on!r}: plans must be chosen on rows that are neither "
            "trained on nor tested on, such as validation"
        )
    held = len(task.split(options.choose_on))
    if held < 4:
        raise UsageError(f"task {task.name} has too few examples to choose a plan on")
    if options.epsilon and held // 2 < examples_needed(options.epsilon, options.delta):
        raise UsageError(
            f"epsilon={options.epsilon:g} cannot be guaranteed: it needs at least "
            f"{examples_needed(options.epsilon, options.delta)} rows to calibrate on, and half of "
            f"{options.choose_on} is {held // 2}"
        )


def _training_records(result: TrainResult | None, arm: str) -> list[Record]:
    if result is None:
        return []
    return [
        Record("train_time_s", result.train_time_s, "s", "measured", {"arm": arm}),
        Record("train_examples", result.examples_seen, "examples", "measured", {"arm": arm}),
    ]


def claims_of(options: Options) -> list[Claim]:
    """Fast enough at the first batch size, and good enough by the one-sided 95 % bound.

    Both must hold, so each is decided alone.
    """
    batch = options.batches[0]
    speed = f"speed over the fastest dense form, batch {batch}"
    return [
        Claim(speed, partial(_speed, batch), options.speed, "ratio"),
        Claim("share of the dense score kept", partial(_kept, batch), options.floor, "share"),
    ]


def _fastest(batch: int, records: RecordTable) -> Record | None:
    speeds = records.all("speed_up", arm=OURS, batch=batch)
    return max(speeds, key=lambda record: float(record.value or 0.0), default=None)


def _speed(batch: int, records: RecordTable, confidence: float) -> Estimate | None:
    """The fastest engine's speed over the fastest dense form."""
    fastest = _fastest(batch, records)
    if fastest is None:
        return None
    return of_record(fastest, confidence, records, "log", of_seeds=False)


def _kept(batch: int, records: RecordTable, confidence: float) -> Estimate | None:
    """The share of the dense score kept on the whole test split; its interval is 90 %."""
    return None if _fastest(batch, records) is None else kept_share(records, OURS)


def _described(options: Options, steps: Steps, folder: Path) -> dict[str, Any]:
    """Task, model and machine settings for the page."""
    task, taught = steps.task, steps.models.taught
    return {
        "name": folder.name,
        "task": {
            "name": task.name,
            "kind": task.kind,
            "metric": task.metric,
            "chance": task.chance,
            "classes": task.classes,
            "licence": task.licence,
            "source": task.source,
            "subset": task.subset,
            "notes": [*(taught or task).notes, *filter(None, [steps.models.new_head])],
            "tokens": task.tokens,
            "examples": {name: len(split) for name, split in task.splits.items()},
        },
        "model": {"name": Path(options.model).name},
        "arms": [DENSE, OURS],
        "baseline": DENSE,
        "threads": options.thread_count,
        "onnxruntime": has_onnx(),
    }
