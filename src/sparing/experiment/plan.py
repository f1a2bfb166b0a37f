"""Run a part of a study's cells now and the rest later, and estimate how long they take."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

from sparing.core.errors import UsageError, nearest
from sparing.core.progress import Progress
from sparing.core.record import Record
from sparing.experiment.forecasts.effects import Effect
from sparing.experiment.parallel.shares import cells_in_share, is_share
from sparing.experiment.run import Cell, Failure, Run
from sparing.measure.energy import process_cpu_seconds

TIME, IDLE = "cell_time_s", "left_out"
BESIDE = "beside"  # the record of a cell that ran beside others


@dataclass(frozen=True)
class PlannedCell:
    """One cell: whether it is done, and about how many minutes of one core it takes, or took.

    ``idle`` is the reason to skip it, empty where it must run; a skipped cell takes none.
    """

    key: str
    minutes: float
    done: bool
    idle: str = ""


@dataclass(frozen=True)
class Plan:
    """All cells of a run in their order; the minutes of cells to do are estimates.

    ``basis`` says what the estimates rest on; ``notes`` are further remarks. ``effects`` are the
    smallest that the planned seeds could decide, of goals that committed runs measured.
    """

    cells: tuple[PlannedCell, ...]
    basis: str
    notes: tuple[str, ...] = ()
    effects: tuple[Effect, ...] = ()

    @property
    def minutes_left(self) -> float:
        """About how long the rest takes."""
        return sum((cell.minutes for cell in self.cells if not cell.done), 0.0)

    def groups(self) -> dict[str, list[PlannedCell]]:
        """The cells by the first two parts of their keys: a task, and what is done on it."""
        groups: dict[str, list[PlannedCell]] = {}
        for cell in self.cells:
            groups.setdefault("/".join(cell.key.split("/")[:2]), []).append(cell)
        return groups

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        cells = [asdict(cell) for cell in self.cells]
        facts = {"minutes_left": self.minutes_left, "basis": self.basis}
        effects = [asdict(effect) for effect in self.effects]
        return {**facts, "notes": list(self.notes), "effects": effects, "cells": cells}


def wanted_cells(cells: Sequence[Cell], pattern: str) -> list[Cell]:
    """The cells with keys that fit a pattern, or of a share such as ``3/16``.

    Raises ``UsageError`` where there is none.
    """
    if is_share(pattern):
        return cells_in_share(cells, pattern)
    fitting = [cell for cell in cells if fnmatchcase(cell.key, pattern)]
    if not fitting:
        raise UsageError(f"no cell fits {pattern!r}{nearest(pattern, [c.key for c in cells])}")
    return fitting


def do_pieces(
    opened: Run, cells: Sequence[Cell], minutes: float | None, on_progress: Progress
) -> list[Failure]:
    """The cells in their order, until the time is up."""
    if minutes is None:
        return list(opened.do(cells, on_progress))
    end, finished = time.monotonic() + 60 * minutes, opened.finished()
    waiting = [cell for cell in cells if cell.key not in finished]
    total, done = sum(cell.weight for cell in waiting) or 1.0, 0.0
    for cell in waiting:
        if time.monotonic() >= end:
            break
        opened.do([cell], _between(done / total, (done + cell.weight) / total, on_progress))
        done += cell.weight
    return list(opened.failures)


def _between(low: float, high: float, on_progress: Progress) -> Progress:
    """The progress of one cell as a part of the run's, below the end of the run."""

    def tell(fraction: float, text: str) -> None:
        if fraction < 1:
            on_progress(low + fraction * (high - low), text)

    return tell


def clocked(cell: Cell) -> Cell:
    """The cell with a further record of how long it took, for later plans."""

    def do() -> list[Record]:
        start, used = time.perf_counter(), process_cpu_seconds()  # children work too
        records = cell.work()
        took, core = time.perf_counter() - start, process_cpu_seconds() - used
        return [*records, Record(TIME, took, "s", "measured", {"core_s": core})]

    return replace(cell, work=do)


def idle_records(
    cells: Sequence[Cell], records: Sequence[Record], finished: set[str]
) -> list[Record]:
    """A record of every skipped cell, with the reason."""
    reasons = {cell.key: cell.why_idle(records) for cell in cells if cell.key not in finished}
    return [
        Record(IDLE, None, "", "measured", {"key": key, "why": reason})
        for key, reason in reasons.items()
        if reason
    ]


def plan_by_kind(
    cells: Sequence[Cell], records: Sequence[Record], finished: set[str], parts: int = 2
) -> Plan:
    """Cells with minutes: measured where they are done, else estimated from their ``weight``.

    Weights are in seconds. They are scaled by the measured times of finished cells of the same
    kind, or of all finished cells where that kind has none. Cells with the same first ``parts``
    parts of their keys are of one kind.
    """
    took = {r.cell: float(r.labels["core_s"] or 0.0) for r in records if r.name == TIME}
    weights = {cell.key: cell.weight for cell in cells}
    known = [key for key in took if key in weights]
    scale = sum(took[key] for key in known) / (sum(weights[key] for key in known) or 1.0)
    by_kind: dict[str, list[str]] = {}
    for key in known:
        by_kind.setdefault(_kind(key, parts), []).append(key)
    scales = {
        kind: sum(took[key] for key in keys) / (sum(weights[key] for key in keys) or 1.0)
        for kind, keys in by_kind.items()
    }
    planned = []
    for cell in cells:
        done = cell.key in finished
        idle = "" if done else cell.why_idle(records)
        guess = 0.0 if idle else cell.weight * (scales.get(_kind(cell.key, parts)) or scale or 1.0)
        planned.append(PlannedCell(cell.key, took.get(cell.key, guess) / 60, done, idle))
    basis = "what finished cells took" if known else "FLOPs alone: a first guess"
    return Plan(tuple(planned), basis)


def _kind(key: str, parts: int) -> str:
    return "/".join(key.split("/")[:parts])
