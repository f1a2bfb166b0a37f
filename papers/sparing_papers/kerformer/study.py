"""Kerformer's tables beside measured ones: time, memory, long ranges, images, swapped encoders.

``sparing study kerformer`` times mechanisms alone and in one named backbone. It trains that
backbone on long-range tasks, and a vision transformer on images, with every mechanism and several
seeds. It swaps a pretrained encoder's attention and distils it, and gives a verdict on every
published claim. A task decides nothing where dense attention is not clearly better than chance and
than the mean of all values. Quick takes about half an hour of one core.

Source: Gan et al., A novel approach to attention mechanism using kernel functions: Kerformer
(2023), doi 10.3389/fnbot.2023.1214203.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from sparing.core.record import Labels, Record, measured
from sparing.experiment.conduct import Experiment
from sparing.experiment.inputs.recipes import require_accelerator
from sparing.experiment.plan import clocked
from sparing.experiment.run import Cell
from sparing.experiment.study import base_config, plain
from sparing_papers.kerformer.claims import claims_of, decide_goals
from sparing_papers.kerformer.cores import core_cells
from sparing_papers.kerformer.options import (
    ARENA,
    CORES,
    NEEDS_ACCELERATOR,
    PRETRAINED,
    QUESTIONS,
    SPEED,
    VISION,
)
from sparing_papers.kerformer.options import BUDGETS as BUDGETS
from sparing_papers.kerformer.options import Options as Options
from sparing_papers.kerformer.speed import speed_cells
from sparing_papers.long_range.analysis import analyse
from sparing_papers.long_range.answers import paired_records
from sparing_papers.long_range.arms import DENSE
from sparing_papers.long_range.measurements import Neighbours, Noise
from sparing_papers.long_range.pretrained import notes as transfer_notes
from sparing_papers.long_range.pretrained import pretrained_cells
from sparing_papers.long_range.train import training_cells
from sparing_papers.long_range.work import (
    LongWork,
    TaskOptions,
    bare_identity,
    can_be_had,
    load,
)

MODELS = {ARENA: "long_range", VISION: "vit"}


def prepare(options: Options, folder: Path, data: Path | None = None) -> Experiment:
    """The study with these options.

    Raises ``UsageError`` for unknown names and for a budget that this machine cannot serve.
    """
    require_accelerator(options.needs, NEEDS_ACCELERATOR)
    works, loaded = _works(options, folder, data)
    learned = [replace(work.task, name=name) for name, work in _named(works).items()]
    identity = _identity(options, loaded)
    config = base_config("kerformer", identity, learned, [options.pretrained.model])
    chances = {work.name: work.task.chance for work in works}

    def analysis(measured: Sequence[Record]) -> list[Record]:
        return [*analyse(measured, chances), *paired_records(measured), *_sizes(works)]

    return Experiment(
        "kerformer",
        config | _described(options, works, folder.name, data),
        lambda opened: _cells(options, works, folder, data),
        lambda records: decide_goals(records, options.questions),
        analysis,
    )


def _identity(options: Options, loaded: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What makes two runs the same one: the settings of its questions, and the tasks' own."""
    identity = plain({**asdict(options), "tasks": loaded})
    left_out = {"needs", *({*QUESTIONS} - {*options.questions})}
    settings = {name: value for name, value in identity.items() if name not in left_out}
    bare = bare_identity(settings, seeds_fixed=options.seeds_fixed)
    return bare | {"questions": sorted({*options.questions})}


def _seeds(options: Options) -> int:
    """The most of any question that is trained for, else one."""
    counts = [settings.seeds for settings in _trained(options).values()]
    return max([*counts, *([options.seeds] if PRETRAINED in options.questions else [])], default=1)


def _works(
    options: Options, folder: Path, data: Path | None
) -> tuple[list[LongWork], dict[str, dict[str, Any]]]:
    """The tasks that can be had, and the options that each was loaded with."""
    works: list[LongWork] = []
    loaded: dict[str, dict[str, Any]] = {}
    for question, settings in _trained(options).items():
        for name in settings.tasks:
            if can_be_had(name, data):
                task, loaded[f"{question}/{name}"] = load(settings, name, data)
                works.append(LongWork(question, name, task, MODELS[question], folder, settings))
    return works, loaded


def _named(works: Sequence[LongWork]) -> dict[str, LongWork]:
    """By task; where two questions train on one of that name, by question and task."""
    names = [work.name for work in works]
    return {
        f"{work.question}/{work.name}" if names.count(work.name) > 1 else work.name: work
        for work in works
    }


def _trained(options: Options) -> dict[str, TaskOptions]:
    every = {ARENA: options.arena, VISION: options.vision}
    return {
        question: settings for question, settings in every.items() if question in options.questions
    }


def _cells(
    options: Options, works: Sequence[LongWork], folder: Path, data: Path | None
) -> list[Cell]:
    threads, cells = options.arena.thread_count, list[Cell]()
    if CORES in options.questions:
        cells += core_cells(options.cores, threads)
    if SPEED in options.questions:
        cells += speed_cells(options.speed, threads)
    measurements = (Noise(options.noise), Neighbours(options.looked_at))
    for work in works:
        cells += training_cells(work, measurements if work.question == ARENA else ())
    if PRETRAINED in options.questions:
        cells += pretrained_cells(
            options.pretrained,
            folder,
            data,
            seeds=options.seeds,
            thread_count=threads,
            watts_per_core=options.arena.watts_per_core,
            measurements=measurements,
        )
    return [clocked(cell) for cell in cells]


def _sizes(works: Sequence[LongWork]) -> list[Record]:
    """The longest input of each task."""
    records: list[Record] = []
    for work in works:
        labels: Labels = {"question": work.question, "task": work.name}
        records += measured(labels, "tokens", task_tokens=float(work.task.tokens))
    return records


def _arms(options: Options) -> list[str]:
    """The variants of all questions of the run, those that are trained from nothing first."""
    pretrained = options.pretrained
    by_question = {
        CORES: options.cores.variants,
        SPEED: options.speed.variants,
        PRETRAINED: [arm for task in pretrained.tasks for arm in pretrained.of(task).compared],
    }
    trained = [arm for settings in _trained(options).values() for arm in settings.compared]
    others = [
        arm
        for question, arms in by_question.items()
        if question in options.questions
        for arm in arms
    ]
    return list(dict.fromkeys((DENSE, *trained, *others)))


def _notes(options: Options, named: Mapping[str, LongWork], data: Path | None) -> list[str]:
    """What must be known of the data, and what was left out."""
    texts = [f"{name}: {note}" for name, work in named.items() for note in work.task.notes]
    for settings in _trained(options).values():
        gone = [task for task in settings.tasks if not can_be_had(task, data)]
        texts += [f"{task} was left out: there is no data folder" for task in gone]
    if PRETRAINED in options.questions:
        texts += transfer_notes(options.pretrained, data)
    return texts


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
            f"learning rate {work.options.rate_text(work.name)}"
            for name, work in named.items()
        },
    }
