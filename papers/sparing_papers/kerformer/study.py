"""Kerformer's tables beside measured ones: time, memory, long ranges, images, swapped encoders.

``sparing study kerformer`` times mechanisms alone and in one named backbone, trains that backbone
on long-range tasks and a vision transformer on images with every mechanism and several seeds, swaps
a pretrained encoder's attention and distils it, and gives a verdict on every published claim. Where
dense attention is not clearly better than guessing and than the mean of all values, a task decides
nothing, and the page says so. Quick takes about half an hour of one core.

Source: Gan et al., A novel approach to attention mechanism using kernel functions: Kerformer
(2023), doi 10.3389/fnbot.2023.1214203.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from sparing.core.progress import Progress
from sparing.core.record import Record
from sparing.experiment.plan import (
    Plan,
    clocked,
    do_pieces,
    idle_records,
    plan_by_kind,
    wanted_cells,
)
from sparing.experiment.run import ANALYSIS, Cell, open_run, standing
from sparing.experiment.study import StudyResult, base_config, plain, write_goals
from sparing_papers.kerformer.claims import claims_of, judge
from sparing_papers.kerformer.cores import core_cells
from sparing_papers.kerformer.options import (
    ARENA,
    CORES,
    PRETRAINED,
    QUESTIONS,
    SPEED,
    VISION,
    require_machine,
)
from sparing_papers.kerformer.options import BUDGETS as BUDGETS
from sparing_papers.kerformer.options import Options as Options
from sparing_papers.kerformer.speed import speed_cells
from sparing_papers.long_range.analysis import analyse
from sparing_papers.long_range.answers import paired_records
from sparing_papers.long_range.arms import DENSE
from sparing_papers.long_range.judges import Neighbours, Noise
from sparing_papers.long_range.pretrained import notes as transfer_notes
from sparing_papers.long_range.pretrained import pretrained_cells
from sparing_papers.long_range.train import training_cells
from sparing_papers.long_range.work import (
    LongWork,
    TaskOptions,
    bare_identity,
    can_be_had,
    in_order,
    load,
)

MODELS = {ARENA: "long_range", VISION: "vit"}


def run(
    options: Options,
    folder: Path,
    *,
    data: Path | None = None,
    on_progress: Progress = lambda fraction, text: None,
    overwrite: bool = False,
    cells: str = "*",
    minutes: float | None = None,
) -> StudyResult:
    """Run the study in a folder that can be continued after any interruption.

    Finished cells are never repeated; ``cells`` and ``minutes`` run a part of them. Raises
    ``UsageError`` for unknown names, for a budget that this machine cannot serve and for a folder
    that holds another run; a cell that fails is noted in the result, and the others go on.
    """
    require_machine(options)
    works, told = _works(options, folder, data)
    config = base_config(
        "kerformer",
        _identity(options, told),
        [replace(work.task, name=name) for name, work in _named(works).items()],
        [options.pretrained.model],
    )
    config |= _described(options, works, folder.name, data)
    planned = _cells(options, works, folder, data)
    config["cells"] = [cell.key for cell in planned]
    wanted = wanted_cells(planned, cells)
    with open_run(folder, config, overwrite=overwrite, today=identity_today) as opened:
        failures = do_pieces(opened, wanted, minutes, on_progress)
        measured = [r for r in opened.records() if r.cell != ANALYSIS]
        chances = {work.name: work.task.chance for work in works}
        found = [*analyse(measured, chances), *paired_records(measured), *_sizes(works)]
        idle = idle_records(planned, measured, opened.finished())
        opened.replace_analysis([*found, *idle])
        records = opened.records()
        goals = judge(records, options.questions)
        write_goals(opened.folder, goals)
        return StudyResult("kerformer", folder, opened.config, records, goals, failures)


def _identity(options: Options, told: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What makes two runs the same one: the settings of what is asked, and the tasks' own."""
    return identity_today(plain({**asdict(options), "tasks": told}))


def identity_today(identity: dict[str, Any]) -> dict[str, Any]:
    """The identity without the settings of what is not asked, which older versions kept."""
    asked = in_order(identity.get("questions", QUESTIONS), QUESTIONS)
    other = {*QUESTIONS} - {*asked}
    own = {name: value for name, value in identity.items() if name not in {"needs", *other}}
    own["questions"] = asked
    own["tasks"] = {
        key: value
        for key, value in identity.get("tasks", {}).items()
        if key.split("/")[0] not in other
    }
    return bare_identity(own)


def _seeds(options: Options) -> int:
    """The most of any question that is trained for, else one."""
    own = [each.seeds for each in _trained(options).values()]
    return max([*own, *([options.seeds] if PRETRAINED in options.questions else [])], default=1)


def plan(options: Options, folder: Path, *, data: Path | None = None) -> Plan:
    """What ``run`` would do in that folder and about how long it takes; trains nothing."""
    works, _ = _works(options, folder, data)
    records, finished = standing(folder)
    return plan_by_kind(_cells(options, works, folder, data), records, finished, parts=2)


def _works(
    options: Options, folder: Path, data: Path | None
) -> tuple[list[LongWork], dict[str, dict[str, Any]]]:
    """The tasks that can be had, and the options that each was loaded with."""
    works: list[LongWork] = []
    told: dict[str, dict[str, Any]] = {}
    for question, own in _trained(options).items():
        for name in own.tasks:
            if can_be_had(name, data):
                task, told[f"{question}/{name}"] = load(own, name, data)
                works.append(LongWork(question, name, task, MODELS[question], folder, own))
    return works, told


def _named(works: Sequence[LongWork]) -> dict[str, LongWork]:
    """By task; where two questions train on one of that name, by question and task."""
    names = [work.name for work in works]
    return {
        f"{work.question}/{work.name}" if names.count(work.name) > 1 else work.name: work
        for work in works
    }


def _trained(options: Options) -> dict[str, TaskOptions]:
    every = {ARENA: options.arena, VISION: options.vision}
    return {question: own for question, own in every.items() if question in options.questions}


def _cells(
    options: Options, works: Sequence[LongWork], folder: Path, data: Path | None
) -> list[Cell]:
    threads, found = options.arena.thread_count, list[Cell]()
    if CORES in options.questions:
        found += core_cells(options.cores, threads)
    if SPEED in options.questions:
        found += speed_cells(options.speed, threads)
    judges = (Noise(options.noise), Neighbours(options.looked_at))
    for work in works:
        found += training_cells(work, judges if work.question == ARENA else ())
    if PRETRAINED in options.questions:
        found += pretrained_cells(
            options.pretrained,
            folder,
            data,
            seeds=options.seeds,
            thread_count=threads,
            watts_per_core=options.arena.watts_per_core,
            judges=judges,
        )
    return [clocked(cell) for cell in found]


def _sizes(works: Sequence[LongWork]) -> list[Record]:
    """The longest input of each task."""
    return [
        Record(
            "task_tokens",
            float(work.task.tokens),
            "tokens",
            "measured",
            {"question": work.question, "task": work.name},
        )
        for work in works
    ]


def _arms(options: Options) -> list[str]:
    """The arms of all questions that are asked, those that are trained from nothing first."""
    pretrained = options.pretrained
    asked = {
        CORES: options.cores.arms,
        SPEED: options.speed.arms,
        PRETRAINED: [arm for task in pretrained.tasks for arm in pretrained.of(task).compared],
    }
    trained = [arm for own in _trained(options).values() for arm in own.compared]
    others = [
        arm for question, arms in asked.items() if question in options.questions for arm in arms
    ]
    return list(dict.fromkeys((DENSE, *trained, *others)))


def _notes(options: Options, named: Mapping[str, LongWork], data: Path | None) -> list[str]:
    """What must be known of the data, and what was left out."""
    found = [f"{name}: {note}" for name, work in named.items() for note in work.task.notes]
    for own in _trained(options).values():
        gone = [task for task in own.tasks if not can_be_had(task, data)]
        found += [f"{task} was left out: there is no data folder" for task in gone]
    if PRETRAINED in options.questions:
        found += transfer_notes(options.pretrained, data)
    return found


def _described(
    options: Options, works: Sequence[LongWork], name: str, data: Path | None
) -> dict[str, Any]:
    """What a reader of the page wants to know beside the numbers."""
    named = _named(works)
    return {
        "name": name,
        "task": {
            "name": "long ranges and images",
            "kind": "tokens",
            "metric": "accuracy",
            "subset": any(work.task.subset for work in works),
            "notes": _notes(options, named, data),
        },
        "model": {
            "name": "long_range",
            "layers": 4,
            "width": 128,
            "feed-forward width": 256,
            "heads": 4,
        },
        "arms": _arms(options),
        "baseline": DENSE,
        "seeds": list(range(_seeds(options))),
        "margin": options.arena.margin,
        "claims": [claim.kind for claim in claims_of(options.questions)],
        "watts_per_core": options.arena.watts_per_core,
        "threads": options.arena.thread_count,
        "trained_on": {
            name: f"{len(work.task.train):,} examples, {work.recipe(0).epochs} epochs, "
            f"batches of {work.recipe(0).batch_size}, up to {work.task.tokens:,} tokens, "
            f"learning rate {work.options.rate_told(work.name)}"
            for name, work in named.items()
        },
    }
