"""HuggingGreen: does choosing patches, attention or stages save energy in training?

``sparing study hugginggreen`` trains small vision transformers in pairs of equal seed and order of
data. It compares patches chosen by contrast, variance or entropy with random patches, a dense model
and convolutions at equal cost. It also trains probabilistic attention and Gaussian keys, and masked
and contrastive stages before fine-tuning. Quick takes about 20 minutes of one core; it has too few
pairs to decide a claim.

Source: Limone et al., HuggingGreen (2023), which ends before the experiment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from sparing.experiment.conduct import Experiment
from sparing.experiment.inputs.recipes import require_accelerator
from sparing.experiment.plan import clocked, plan_by_kind
from sparing.experiment.run import Cell
from sparing.experiment.study import base_config, plain
from sparing.tasks import Task
from sparing_papers.hugginggreen.analysis import analyse
from sparing_papers.hugginggreen.arms import (
    Arm,
    attention_arms,
    chosen_attentions,
    patch_arms,
    shuffled,
)
from sparing_papers.hugginggreen.boxes import box_cells
from sparing_papers.hugginggreen.cells import arm_cell
from sparing_papers.hugginggreen.claims import decide_goals, described
from sparing_papers.hugginggreen.names import ATTENTION, BOXES, PATCHES, STAGES
from sparing_papers.hugginggreen.options import BUDGETS as BUDGETS
from sparing_papers.hugginggreen.options import NEEDS_ACCELERATOR, load, task_names, unlabelled
from sparing_papers.hugginggreen.options import Options as Options
from sparing_papers.hugginggreen.pictures import pictures_cell
from sparing_papers.hugginggreen.stages import arms_of, stage_cell
from sparing_papers.hugginggreen.train import FORWARD_AND_BACK, Work

TYPICAL_FLOPS = 26e9  # of training on one core, for models of this size, evaluation included
BESIDE_S = 1.0  # to build, save and time a model


def prepare(options: Options, folder: Path, data: Path | None = None) -> Experiment:
    """The study with these options.

    Raises ``UsageError`` for unknown names and for a budget that this machine cannot run.
    """
    require_accelerator(options.needs, NEEDS_ACCELERATOR)
    options.energy_meter()  # one that is not installed is named before the first cell
    tasks, boxed, loaded = _tasks(options, data)
    identity = plain({**asdict(options), "tasks": loaded})
    del identity["needs"]
    learned = [*tasks.values(), *boxed.values()]
    config = base_config("hugginggreen", identity, learned)
    tested = {name: len(task.test) for name, task in (boxed | tasks).items()}

    return Experiment(
        "hugginggreen",
        config | described(options, tasks, folder.name),
        lambda opened: _cells(options, tasks, boxed, folder, data),
        lambda records: decide_goals(options, tasks, records),
        lambda measured: analyse(measured, tested, options.margin),
        estimate=partial(plan_by_kind, parts=3),
    )


def _tasks(
    options: Options, data: Path | None
) -> tuple[dict[str, Task], dict[str, Task], dict[str, dict[str, Any]]]:
    """The tasks, those with boxes, and the options that each was loaded with."""
    tasks: dict[str, Task] = {}
    boxed: dict[str, Task] = {}
    loaded: dict[str, dict[str, Any]] = {}
    for name in task_names(options, data):
        tasks[name], loaded[name] = load(options, name, data)
    for name in options.box_tasks if BOXES in options.questions else ():
        boxed[name], loaded[f"{name}, boxes"] = load(options, name, data, boxes=True)
    return tasks, boxed, loaded


def _cells(
    options: Options,
    tasks: Mapping[str, Task],
    boxed: Mapping[str, Task],
    folder: Path,
    data: Path | None,
) -> list[Cell]:
    """Cells seed by seed, variants in another order each time, so that pairs run close in time."""
    cells: list[Cell] = []
    sizes = options.width, options.heads, options.depths[0]
    for name, task in tasks.items():
        work, questions = Work(name, task, folder, options, *sizes), options.questions_for(name)
        if PATCHES in questions:
            cells.append(pictures_cell(work))
            for depth in options.depths:
                arms = patch_arms(options, task, whole=depth == work.depth)
                cells += _in_turns(replace(work, depth=depth), PATCHES, arms, options.pairs)
        if ATTENTION in questions:
            larger = _attention_work(work)
            chosen = options.attentions
            arms = chosen_attentions(options) if chosen else attention_arms(larger.heads)
            cells += _in_turns(larger, ATTENTION, arms, options.attention_pairs)
        if STAGES in questions:
            images = unlabelled(options, name, task, data)
            cells += [
                _weighed(stage_cell(work, images, arm, seed), work, 2.0)
                for seed in range(options.stage_pairs)
                for arm in arms_of(seed)
            ]
    for name, task in boxed.items():
        work = Work(name, task, folder, options, *sizes)
        cells += [_weighed(cell, work, 1.0) for cell in box_cells(work, options.box_pairs)]
    return [clocked(cell) for cell in cells]


def _attention_work(work: Work) -> Work:
    """The same task at the sizes of RQ1's models."""
    options = work.options
    return replace(
        work,
        width=options.attention_width or work.width,
        heads=options.attention_heads or work.heads,
        depth=options.attention_depth or work.depth,
    )


def _in_turns(work: Work, question: str, arms: Sequence[Arm], pairs: int) -> list[Cell]:
    return [
        _weighed(arm_cell(work, question, arm, seed), work, 1.0)
        for seed in range(pairs)
        for arm in shuffled(arms, seed, question)
    ]


def _weighed(cell: Cell, work: Work, factor: float) -> Cell:
    """The cell with its seconds as a weight, by the FLOPs of the dense variant."""
    images = len(work.task.train) * work.recipe(0).epochs
    per_image = 16.0 * work.depth * work.width**2 * work.task.tokens
    seconds = FORWARD_AND_BACK * images * per_image / TYPICAL_FLOPS
    return Cell(cell.key, cell.work, BESIDE_S + factor * seconds)
