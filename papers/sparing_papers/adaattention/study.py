"""AdaAttention: the paper's tables, the same measured here, and what is faster instead.

``sparing study adaattention`` fine-tunes one dense model and changes its attention in every way
that the paper compares. It trains each on with the same recipe, and measures whole models on the
texts of the task. Expected: the printed method is a few per cent slower than the dense model, not
1.76 times faster. Quick takes about a quarter of an hour on one core.

Source: Balajee, "Adaptive Attention Mechanisms for Efficient Transformer Models".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from sparing.core.paths import expanded
from sparing.core.record import Record
from sparing.experiment.conduct import Experiment
from sparing.experiment.inputs.recipes import require_accelerator
from sparing.experiment.plan import clocked
from sparing.experiment.run import Cell
from sparing.experiment.study import base_config, plain
from sparing.models import default_model
from sparing_papers.adaattention.analysis import analyse
from sparing_papers.adaattention.arithmetic import bounds, impossible, scorers
from sparing_papers.adaattention.arms import Work
from sparing_papers.adaattention.cells import speed as shapes
from sparing_papers.adaattention.cells.answers import restore
from sparing_papers.adaattention.cells.certificate import certificate_cell
from sparing_papers.adaattention.cells.curves import heads_cell, rotation_cell
from sparing_papers.adaattention.cells.patterns import kept_cell, patterns_cell
from sparing_papers.adaattention.cells.shared import shared_cells
from sparing_papers.adaattention.cells.timing import (
    QUANTISED,
    Timing,
    int8_cell,
    throughput_cell,
    timing_cell,
)
from sparing_papers.adaattention.cells.training import arm_cell, dense_cell
from sparing_papers.adaattention.claims import decide_goals
from sparing_papers.adaattention.further.reach import notes_of
from sparing_papers.adaattention.names import ADAPTIVE, FULL
from sparing_papers.adaattention.options import BUDGETS as BUDGETS
from sparing_papers.adaattention.options import LATER, NEEDS_ACCELERATOR, Options, works_of
from sparing_papers.adaattention.plan import arm_seconds, calls_seconds, make_plan, timed_seconds
from sparing_papers.adaattention.published import printed

FEW_WORDS = 1000  # words take no time to look up, and their memory is not measured here
IMAGE_TOKENS = 197  # ViT-B on 224 x 224 pixels, as in Table III


def prepare(options: Options, folder: Path, data: Path | None = None) -> Experiment:
    """The study with these options.

    Raises ``UsageError`` for unknown names and for a budget that this machine cannot run.
    """
    require_accelerator(options.needs, NEEDS_ACCELERATOR)
    works, loaded = works_of(options, folder, data)
    identity = plain({**asdict(options), "tasks": loaded})
    identity["precision"] = works[0].length.precision  # resolved on this machine
    del identity["needs"]  # depends on the machine, not on what is run
    for setting, later in LATER.items():
        for name in () if identity[setting] else later:
            del identity[name]  # so that runs from before these options resume
    learned, models = [work.task for work in works], (options.model, options.image_model)
    config = base_config("adaattention", _named(identity, options), learned, models)
    inside = [work.name for work in works if options.ablated(work)]

    def analysis(measured: Sequence[Record]) -> list[Record]:
        scores = analyse(measured, works, options.seeds, inside)
        return [*scores, *shapes.memory_ratios(measured)]

    return Experiment(
        "adaattention",
        config | _described(options, works, folder.name),
        lambda opened: _cells(options, works),
        lambda records: decide_goals(records, options, works),
        analysis,
        begin=lambda opened: restore(works, opened.records(), opened.finished()),
        estimate=lambda cells, records, finished: make_plan(cells, works, records, finished),
        by_task=True,
        notes=notes_of(options, works),
    )


def _cells(options: Options, works: Sequence[Work]) -> list[Cell]:
    """Computed facts, speeds before anything heats the machine, then each task."""
    cells = [Cell("arithmetic", _arithmetic, weight=0.1)]
    if options.shape_layers and options.lengths:
        encoder = shapes.Encoder(options.shape_layers, max(512, *options.lengths))
        rounds, threads = options.shape_rounds, options.thread_count
        small = replace(encoder, vocabulary=FEW_WORDS)
        cells += [shapes.speed_cell(small, n, rounds, threads) for n in options.lengths]
        longest = max(options.lengths)
        for tokens in sorted({longest, *({IMAGE_TOKENS} & {*options.lengths})}):
            forms = (*shapes.FORMS, *shapes.INT8_FORMS)
            cells += [shapes.memory_cell(encoder, name, tokens, threads) for name in forms]
    for work in works:
        cells += _task_cells(options, work)
    cells += shared_cells(options, works)
    return [clocked(cell) for cell in cells]


def _arithmetic() -> list[Record]:
    return [*bounds(), *scorers(), *impossible(), *printed()]


def _task_cells(options: Options, work: Work) -> list[Cell]:
    """Trainings, each seed in another order; then timings; then patterns and ablations.

    The variants of Tables I to III are timed with every seed, since what is cut differs by seed.
    """
    arms = options.arms_of(work)
    timing = Timing(options.timed_examples, options.rounds, options.thread_count)
    cells, first, names = [], options.seeds[0], [arm.name for arm in arms]
    for number, seed in enumerate(options.seeds):
        full, rest = arms[:1], arms[1:]  # slim needs the score of full
        turn = number % max(1, len(rest))  # no other variant is always first
        dense = dense_cell(work, seed, timing.threads)
        cells.append(replace(dense, weight=arm_seconds(work, None)))
        cells += [
            replace(arm_cell(work, arm, seed, timing.threads), weight=arm_seconds(work, arm))
            for arm in (*full, *rest[turn:], *rest[:turn])
        ]
    if names == [FULL]:
        return cells  # nothing to compare the full model with
    for group in dict.fromkeys(arm.group for arm in arms):
        members = [arm.name for arm in arms if arm.group == group]
        weight = timed_seconds(work, timing.examples, timing.rounds, len(members) + 1)
        main = any(arm.everywhere for arm in arms if arm.group == group)
        for seed in options.seeds if main else (first,):
            cell = timing_cell(work, group, members, seed, timing, steps=options.ablated(work))
            cells.append(replace(cell, weight=weight))
    baselines = [arm.name for arm in arms if arm.group == "rivals"]
    weight = timed_seconds(work, timing.examples, 7, len(baselines))
    cells.append(replace(throughput_cell(work, baselines, first, timing), weight=weight))
    shown = [*_ablation_cells(options, work, names, timing)] if options.ablated(work) else []
    if ADAPTIVE in names:
        shown.append(patterns_cell(work, first))
    if "skip" in names:
        shown.append(kept_cell(work, first))
    return [*cells, *(replace(cell, weight=_seconds(work, cell)) for cell in shown)]


def _ablation_cells(
    options: Options, work: Work, names: Sequence[str], timing: Timing
) -> list[Cell]:
    """The further cells of the tasks that run every variant."""
    first = options.seeds[0]
    quantised = [name for name in QUANTISED if name in names]
    cells = [int8_cell(work, options.seeds, quantised, timing), certificate_cell(work, first)]
    if "uniform-rotated" in names:
        cells.append(rotation_cell(work, first))
    if "prune" in names:
        cells.append(heads_cell(work, first))
    return cells


def _seconds(work: Work, cell: Cell) -> float:
    """Estimated seconds of a further cell, from its passes over the test split."""
    passes = {"int8": 12.0, "rotation": 11.0, "heads": 8.0, "patterns": 1.5}
    return calls_seconds(work, passes.get(cell.key.split("/")[-2], 0.5))


def _named(identity: Any, options: Options) -> Any:
    """Models by name alone: a path of this machine is of no use elsewhere."""
    if isinstance(identity, dict):
        return {key: _named(value, options) for key, value in identity.items()}
    if identity and identity in (options.model, options.image_model):
        path = expanded(identity)
        return path.name if path.is_dir() else identity
    return identity


def _described(options: Options, works: Sequence[Work], name: str) -> dict[str, Any]:
    """Facts on tasks, models and recipes for the page."""
    first = works[0].task
    return {
        "name": name,
        "task": {
            "name": ", ".join(work.name for work in works),
            "kind": first.kind,
            "metric": first.metric if len(works) == 1 else "each task's own",
            "chance": first.chance if len(works) == 1 else None,
            "classes": first.classes,
            "licence": first.licence,
            "source": first.source,
            "subset": any(work.task.subset for work in works),
            "notes": [f"{work.name}: {note}" for work in works for note in work.task.notes],
            "tokens": max(work.task.tokens for work in works),
            "examples": {
                work.name: {split: len(rows) for split, rows in work.task.splits.items()}
                for work in works
            },
        },
        "tasks": [work.name for work in works],
        "special": {work.name: _special(work) for work in works},
        "model": _model(works[0]),
        "recipe": plain(asdict(works[0].recipe(0, dense=False))),
        "dense_epochs": works[0].recipe(0, dense=True).epochs,
        "arms": [arm.name for arm in options.arms],
        "ablations": [work.name for work in works if options.ablated(work)],
        "recipes": {work.name: _recipe(work, taught=bool(options.taught)) for work in works},
        "baseline": FULL,
        "seeds": list(options.seeds),
        "threads": options.thread_count,
        "engine": "eager PyTorch, fused attention; INT8 by torch.ao, dynamic",
    }


def _recipe(work: Work, *, taught: bool) -> dict[str, Any]:
    """The main settings of a task's training."""
    layers = {"layer_epochs": work.length.layer_epochs, "layer_rate": work.length.layer_rate}
    dense, arm = work.recipe(0, dense=True), work.recipe(0, dense=False)
    return {
        "model": Path(work.model).name if work.pretrained else default_model(work.task),
        "pretrained": work.pretrained,
        "dense_epochs": dense.epochs,
        "epochs": arm.epochs,
        "batch_size": arm.batch_size,
        "learning_rate": arm.learning_rate,
        "mechanism_rate_factor": arm.mechanism_rate_factor,
        "precision": arm.precision,
        "attention_dropout": work.length.attention_dropout,
        **(layers if taught else {}),
    }


def _model(work: Work) -> dict[str, Any]:
    """The model's name, and its sizes if it starts from random weights."""
    if work.pretrained:
        return {"name": Path(work.model).name}
    return {"name": work.model or default_model(work.task), **plain(work.sizes)}


def _special(work: Work) -> dict[str, bool]:
    """Whether texts begin with a class token and end with a separator."""
    tokenizer = work.task.tokenizer
    ends = tokenizer is not None and tokenizer.sep_token_id is not None
    return {"first": True, "last": bool(ends)}
