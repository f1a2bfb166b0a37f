"""How an experiment runs: its cells, analysis and goals, and the plan of what is left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sparing.core.progress import Progress
from sparing.core.record import Record
from sparing.experiment.claims import GoalResult
from sparing.experiment.forecasts.effects import planned_seeds, smallest_effects
from sparing.experiment.parallel.running import DRIVER, drop_notes, noted
from sparing.experiment.plan import Plan, do_pieces, idle_records, plan_by_kind, wanted_cells
from sparing.experiment.run import ANALYSIS, Cell, Failure, Run, existing_records, open_run
from sparing.experiment.study import StudyResult, require_same, write_goals
from sparing.train.surroundings import generators_kept

Records = Sequence[Record]
Elsewhere = Callable[[Run, Sequence[Cell], float | None, Progress], list[Failure]]


def no_progress(fraction: float, text: str) -> None:
    """No progress is shown unless the caller gives a way to."""


@dataclass(frozen=True)
class Experiment:
    """A study with its options, ready to be done in a folder.

    ``config`` is written into the folder: ``base_config`` and further facts for the page. ``cells``
    gives the work, in order, for the opened run. ``analyse`` computes records from the measured
    ones, ``decide_goals`` gives the goals from both. ``begin`` is called before the first cell and
    ``finish`` after the last, with the failures. ``estimate`` says how long cells take, given the
    records and keys of finished ones. With ``by_task`` keys begin with a task, and the settings of
    a task without finished work may still change. ``notes`` are shown at the start. ``seeds`` gives
    the planned seeds by a goal's name; None where the configuration has one number for all.
    """

    name: str
    config: dict[str, Any]
    cells: Callable[[Run], Sequence[Cell]]
    decide_goals: Callable[[Records], list[GoalResult]]
    analyse: Callable[[Records], Records] | None = None
    begin: Callable[[Run], None] = lambda run: None
    finish: Callable[[Run, Sequence[Failure]], None] = lambda run, failures: None
    estimate: Callable[[Sequence[Cell], Records, set[str]], Plan] = plan_by_kind
    by_task: bool = False
    notes: tuple[str, ...] = ()
    seeds: Callable[[str], int] | None = None


def conduct(
    experiment: Experiment,
    folder: Path,
    *,
    on_progress: Progress = no_progress,
    overwrite: bool = False,
    cells: str = "*",
    minutes: float | None = None,
    elsewhere: Elsewhere | None = None,
) -> StudyResult:
    """Do an experiment in a folder that can be continued after any interruption.

    Finished cells are never repeated. ``cells`` is a pattern for the keys to run now, such as
    ``sst2/*``. After ``minutes`` no further cell begins; a later call runs the rest. A failed cell
    is noted in the result, and the others go on. With ``elsewhere`` other processes run the cells.

    Raises ``UsageError`` for a pattern that no cell fits and for a folder that holds another run.
    """
    planned = experiment.cells(Run(folder, experiment.config))
    keys = {cell.key for cell in wanted_cells(planned, cells)}
    config = {**experiment.config, "cells": [cell.key for cell in planned]}
    by_task = experiment.by_task
    with (
        generators_kept(),
        open_run(folder, config, overwrite=overwrite, by_task=by_task) as opened,
    ):
        for note in experiment.notes:
            on_progress(0.0, note)
        experiment.begin(opened)
        work = [cell for cell in experiment.cells(opened) if cell.key in keys]
        failures = _do(opened, work, minutes, on_progress, elsewhere)
        if experiment.analyse is not None:
            measured = [record for record in opened.records() if record.cell != ANALYSIS]
            skipped = idle_records(work, measured, opened.finished())
            opened.replace_analysis([*experiment.analyse(measured), *skipped])
        records = opened.records()
        goals = experiment.decide_goals(records)
        write_goals(opened.folder, goals)
        experiment.finish(opened, failures)
        return StudyResult(experiment.name, folder, opened.config, records, goals, failures)


def _do(
    opened: Run,
    work: Sequence[Cell],
    minutes: float | None,
    on_progress: Progress,
    elsewhere: Elsewhere | None,
) -> list[Failure]:
    """Run the cells here or elsewhere, with a note in the folder on how far they are."""
    drop_notes(opened.folder)
    with noted(opened.folder, DRIVER) as note:

        def tell(fraction: float, text: str) -> None:
            note(fraction, text)
            on_progress(fraction, text)

        if elsewhere is None:
            return do_pieces(opened, work, minutes, tell)
        return elsewhere(opened, work, minutes, tell)


def plan(
    experiment: Experiment, folder: Path, pattern: str = "*", committed: Sequence[Path] = ()
) -> Plan:
    """What ``conduct`` would do in that folder and about how long it takes; starts nothing.

    It says what effects the planned seeds could decide, by the spread in the folders ``committed``.
    Only cells that fit the pattern are part of it. Raises ``UsageError`` where none does, and where
    the folder holds another run.
    """
    require_same(folder, experiment.config, by_task=experiment.by_task)
    cells = experiment.cells(Run(folder, experiment.config))
    keys = {cell.key for cell in wanted_cells(cells, pattern)}
    planned = experiment.estimate(cells, *existing_records(folder))
    shown = tuple(cell for cell in planned.cells if cell.key in keys)
    seeds = experiment.seeds or planned_seeds(experiment.config)
    effects = smallest_effects(experiment.decide_goals, committed, seeds)
    return replace(planned, cells=shown, notes=experiment.notes, effects=effects)
