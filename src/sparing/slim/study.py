"""Make a fine-tuned encoder faster: cut, distil, choose by measured speed, and bound the changes.

``sparing slim MODEL --task TASK`` runs it: minutes for a toy model, an hour or more on one core for
a small BERT with thousands of texts. Expected on SST-2 with a six-layer MiniLM: about half the time
of the fastest dense form, at a loss of at most half a point.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch

from sparing.core.errors import UsageError
from sparing.core.record import Record
from sparing.experiment.cells.expected import Seconds, of_slim, weighted
from sparing.experiment.cells.training import trained_cell
from sparing.experiment.claims import Claim, Estimate, decide, of_record
from sparing.experiment.conduct import Experiment
from sparing.experiment.inputs.fit import (
    refuse_others,
    require_openable_model,
    require_tuned,
)
from sparing.experiment.inputs.task import load_for
from sparing.experiment.plan import plan_by_kind
from sparing.experiment.records import RecordTable
from sparing.experiment.run import Cell, Failure, Run
from sparing.experiment.study import base_config, plain
from sparing.measure.calibration import examples_needed
from sparing.slim.engines import Engines
from sparing.slim.evidence.certify import answer_forms, certify, time_candidates
from sparing.slim.evidence.kept import FORM, kept_share
from sparing.slim.evidence.memory import memory_of
from sparing.slim.evidence.verify import answer_all, early_exits, score_baseline, verify_forms
from sparing.slim.models import Models, held_out_parts, recipes
from sparing.slim.options import BUDGETS as BUDGETS
from sparing.slim.options import Options, with_fewer
from sparing.slim.saving import refuse_model_folder, save
from sparing.slim.search.choose import choose_plan, survey_plans
from sparing.slim.search.fixed_width import fine_tune, keep_tuned, static_records, train_static
from sparing.slim.sentences import embeds, sentences_task
from sparing.slim.steps import DENSE, OURS, Steps
from sparing.slim.texts import answer_splits, followed, texts_task
from sparing.tasks import Task
from sparing.tasks.shared.unlabelled import with_unlabelled
from sparing.train import TrainResult


def prepare(options: Options, folder: Path, data: Path | None = None) -> Experiment:
    """The steps with these options; the user's model is read, never written.

    Raises ``UsageError`` for unknown names, a model that does not fit the task, and a folder that
    holds the model itself.
    """
    config, steps, cut = _begun(options, folder, data)

    def finish(opened: Run, failures: Sequence[Failure]) -> None:
        # a call may do a part of the steps
        left = {cell.key for cell in _cells_of(steps, options)} - opened.finished()
        if not failures and not left:
            save(steps, opened, options.model)
            steps.engines.drop()

    return Experiment(
        "slim",
        config,
        lambda opened: _cells_of(steps, options),
        lambda records: decide(claims_of(options), RecordTable(records)),
        finish=finish,
        estimate=partial(plan_by_kind, parts=3),
        notes=(*cut, *filter(None, [steps.models.new_head])),
    )


def _begun(
    options: Options, folder: Path, data: Path | None
) -> tuple[dict[str, Any], Steps, tuple[str, ...]]:
    """The run's configuration, its steps, and a note on each split that is not taken whole."""
    refuse_model_folder(options.model, folder)
    _require_device(options.device)
    require_openable_model(options.model)
    refuse_others(options.model, texts=bool(options.texts), task=bool(options.task))
    whole, resolved = task_of(options, data)
    task = with_fewer(whole, options)
    _require_held_out(task, options)
    identity = {**asdict(options), "task_options": resolved}
    del identity["keep"]  # it may also be wanted of a finished run
    for name in ("device", "held_out_examples"):
        if identity[name] == getattr(Options, name):
            del identity[name]  # runs of earlier versions go on
    steps = steps_of(options, task, folder, data)
    steps.models.require_source()
    config = base_config("slim", plain(identity), [task], [options.model])
    config |= _described(options, steps, folder)
    return config, steps, task.notes[len(whole.notes) :]


def task_of(options: Options, data: Path | None = None) -> tuple[Task, Mapping[str, Any]]:
    """The task, or your texts as one, and the options that it was read with."""
    if options.texts:
        task = texts_task(
            options.texts,
            options.model,
            options=options.task_options,
            seed=options.seed,
            hold_out=options.hold_out,
            changed=options.changed,
            delta=options.delta,
        )
        return task, options.task_options
    task, resolved = load_for(options.task, options.task_options, options.model, data)
    if embeds(options.model):
        needed = examples_needed(options.changed, options.delta)
        return sentences_task(task, options.model, needed), resolved
    require_tuned(options.model, task)
    return (task if task.answer == "class" else followed(task)), resolved


def steps_of(options: Options, task: Task, folder: Path, data: Path | None = None) -> Steps:
    """The steps of a run in this folder."""
    taught = _taught(options, task, data)
    name = "text" if options.texts or task.answer == "vector" else options.task
    dense, ours, fixed_width_epochs = recipes(options, task, name, taught)
    models = Models(
        source=options.model,
        given=task,
        folder=folder,
        dense_recipe=dense,
        recipe=ours,
        draw=options.draw(task),
        seed=options.seed,
        choose_on=options.choose_on,
        attention_dropout=options.attention_dropout,
        fixed_width_epochs=fixed_width_epochs,
        taught=taught,
        answer=options.answer(task),
    )
    # the first batch size decides which forms are fastest, so files are made for it
    skips = options.batches[0] > 1 and task.kind == "tokens"
    engines = Engines(task, folder / "engines", options.thread_count, options.device, skips)
    return Steps(models, engines, options)


def _taught(options: Options, task: Task, data: Path | None) -> Task:
    """The task with the texts without labels that slim is also distilled on."""
    most, seed = options.unlabelled_examples, options.seed
    return with_unlabelled(task, options.unlabelled, most=most, seed=seed, data=data)


def _cells_of(steps: Steps, options: Options) -> list[Cell]:
    models = steps.models

    verify = {batch: partial(verify_forms, steps, batch) for batch in options.batches}
    memory = partial(memory_of, steps, max(options.batches))
    static = trained_cell("static", partial(train_static, steps), partial(static_records, steps))
    cells = [
        trained_cell("dense", models.train_dense, partial(_training_records, DENSE)),
        *([Cell("dense-answers", partial(dense_answers, steps))] if models.labelless else []),
        trained_cell("distil", models.train_adaptive, partial(_training_records, OURS)),
        Cell("baseline", partial(score_baseline, steps)),
        Cell("survey", partial(survey_plans, steps)),
        Cell("choose", partial(choose_plan, steps)),
        trained_cell("fixed-width", partial(fine_tune, steps), partial(keep_tuned, steps)),
        Cell("forms", partial(answer_forms, steps), weight=2.0),
        Cell("candidates", partial(time_candidates, steps), weight=2.0),
        Cell("certify", partial(certify, steps)),
        *([static] if options.static_control else []),
        *(Cell(f"verify/batch-{batch}", work) for batch, work in verify.items()),
        Cell("exits", partial(early_exits, steps)),
        Cell("answers", partial(answer_all, steps)),
        *([Cell("memory", memory)] if options.memory and options.device == "cpu" else []),
    ]
    return weighted(cells, _expected(steps, options))


def dense_answers(steps: Steps) -> list[Record]:
    """The dense model answers all texts, in place of labels."""
    models = steps.models
    shares = answer_splits(models.dense(), models.given, models.folder, models.answer)
    return [
        Record("dense_answers", share, "share", "measured", {"class": name, "split": "test"})
        for name, share in shares.items()
    ]


def _expected(steps: Steps, options: Options) -> Seconds:
    """How long the steps may take."""
    models = steps.models
    epochs = {
        "dense": 0 if models.fine_tuned else models.dense_recipe.epochs,
        "distil": models.recipe.epochs,
        "fixed-width": models.fixed_width_epochs,
    }
    given = models.given
    return of_slim(
        models.shape,
        given,
        epochs=epochs,
        timed=min(options.timed_examples, len(given.test)),
        plans=len(options.variants(given)),
    )


def _require_device(device: str) -> None:
    """Raise ``UsageError`` where the device is not here."""
    if device == "cuda" and not torch.cuda.is_available():
        raise UsageError(
            "device=cuda: PyTorch sees no CUDA device here; "
            "leave it out to measure on this machine's CPU"
        )


def _require_held_out(task: Task, options: Options) -> None:
    """Raise ``UsageError`` unless there are enough rows to choose and to calibrate on."""
    if options.choose_on in ("train", "test"):
        raise UsageError(
            f"choose_on={options.choose_on!r}: plans must be chosen on rows that are neither "
            "trained on nor tested on, such as validation"
        )
    choose, calibrate = map(len, held_out_parts(task, options.choose_on))
    if min(choose, calibrate) < 2:
        raise UsageError(f"task {task.name} has too few examples to choose a plan on")
    needed = examples_needed(options.changed, options.delta)
    if calibrate < needed and options.agree:
        raise UsageError(
            f"an agreement of {options.agree:g} cannot be certified: it needs at least {needed:,} "
            f"examples to calibrate on, and there are {calibrate:,}"
        )


def _training_records(arm: str, result: TrainResult | None) -> list[Record]:
    if result is None:
        return []
    return [
        Record("train_time_s", result.train_time_s, "s", "measured", {"arm": arm}),
        Record("train_examples", result.examples_seen, "examples", "measured", {"arm": arm}),
    ]


def claims_of(options: Options) -> list[Claim]:
    """Fast enough at the first batch size, certified agreement, and the score where there is one.

    All must hold, so each is decided alone.
    """
    batch = options.batches[0]
    speed = f"speed over the best dense form, batch {batch}"
    listed = [
        Claim(speed, partial(_speed, batch), options.speed, "ratio"),
        Claim("answers of the dense model kept", _agreement, 1 - options.changed, "share"),
    ]
    if not options.texts:
        listed.append(Claim("share of the dense score kept", _score_share, options.floor, "share"))
    return listed


def _speed(batch: int, records: RecordTable, confidence: float) -> Estimate | None:
    """The served form's speed over the fastest dense form that keeps as much."""
    speed = records.find("served_speed_up", batch=batch)
    return None if speed is None else of_record(speed, confidence, records, "log", of_seeds=False)


def _agreement(records: RecordTable, confidence: float) -> Estimate | None:
    """The share of calibration answers that stay; its lower end is the certified one."""
    seen = records.find("disagreement")
    if seen is None:
        return None
    same = 1 - float(seen.value or 0.0)
    certified = 1.0 if seen.labels["reference"] else 1 - float(str(seen.labels["epsilon"]))
    return Estimate(same, (min(certified, same), 1.0))


def _score_share(records: RecordTable, confidence: float) -> Estimate | None:
    """The share of the dense score kept on the whole test split; its interval is 90 %."""
    seen = records.find("disagreement")
    if seen is None:
        return None
    form = {name: seen.labels.get(name) for name in FORM}
    return kept_share(records, form)


def _described(options: Options, steps: Steps, folder: Path) -> dict[str, Any]:
    """Task, model and machine settings for the page."""
    task, taught, labelless = steps.models.given, steps.models.taught, steps.models.labelless
    forms = steps.engines.installed()
    return {
        "name": folder.name,
        "task": {
            "name": task.name,
            "kind": task.kind,
            "metric": next(iter(steps.models.scored), task.metric),
            **({"chosen_by": task.metric} if steps.models.scored else {}),
            "chance": None if labelless else task.chance,
            "classes": task.classes if task.answer in ("class", "labels") else None,
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
        "forms": forms,
    }
