"""The driver of a run in several processes: it alone decides, and writes records."""

from __future__ import annotations

import errno
import json
import socket
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any, Protocol, runtime_checkable

from sparing.core.errors import DataError, UsageError
from sparing.core.progress import Progress
from sparing.core.writing import write_atomically
from sparing.experiment.parallel.orders import Done, Order, Source, carry_out
from sparing.experiment.parallel.running import read_notes
from sparing.experiment.run import MACHINES, Cell, Failure, Run, failure_of

LOOK_EVERY_S = 0.5


@runtime_checkable
class Engine(Protocol):
    """Where cells run side by side."""

    @property
    def count(self) -> int:
        """How many cells run at a time."""
        ...

    @property
    def neighbours(self) -> int:
        """How many of them run beside one cell on its machine."""
        ...

    def submit(self, work: Any, order: Any, /) -> Future[Any]:
        """The result of ``work(order)`` in another process."""
        ...

    def submit_alone(self, work: Any, order: Any, /) -> Future[Any] | None:
        """The same on a machine without other work; None where that is this process."""
        ...


@dataclass
class Driver:
    """Runs the cells of one run on an engine; ``source`` is how other processes prepare them."""

    run: Run
    engine: Engine
    source: Source
    on_progress: Progress

    def do(self, cells: Sequence[Cell], minutes: float | None = None) -> list[Failure]:
        """Run the cells that are not finished; a failed one is noted and the others go on.

        Cells that may run beside others do so up to the next one that may not, which waits for
        them. After ``minutes`` no further cell begins. Raises ``UsageError`` where a process has
        another version, other data or another folder; everything finished is kept.
        """
        self.run.begin()
        self._end = None if minutes is None else time.monotonic() + 60 * minutes
        self._total = sum(cell.weight for cell in cells) or 1.0
        finished = self.run.finished()
        self._done = sum(cell.weight for cell in cells if cell.key in finished)
        waiting = [cell for cell in cells if cell.key not in finished]
        for beside, group in groupby(waiting, lambda cell: cell.beside):
            if beside:
                self._side_by_side([*group])
            else:
                for cell in group:
                    self._alone(cell)
        self.run.write_failures(cells)
        if self._end is None:
            self.on_progress(1.0, "done")
        return list(self.run.failures)

    def _time_is_up(self) -> bool:
        return self._end is not None and time.monotonic() >= self._end

    def _alone(self, cell: Cell) -> None:
        """One cell while nothing else of the run is running."""
        if self._time_is_up() or cell.why_idle(self.run.records()):
            return
        future = self.engine.submit_alone(carry_out, self._order(cell, 0))
        if future is None:
            self.run.do([cell], partial(self._tell_alone, cell.weight))
            self._done += cell.weight
        else:
            self._finish_all({future: cell})

    def _tell_alone(self, weight: float, fraction: float, text: str) -> None:
        """The progress of a cell in this process as a part of the run's, below its end."""
        if fraction < 1:
            self.on_progress((self._done + fraction * weight) / self._total, text)

    def _side_by_side(self, cells: list[Cell]) -> None:
        running: dict[Future[Done], Cell] = {}
        try:
            while cells or running:
                while len(running) < self.engine.count:
                    cell = self._next(cells, running)
                    if cell is None:
                        break
                    others = self.engine.neighbours
                    running[self.engine.submit(carry_out, self._order(cell, others))] = cell
                if not running:
                    return  # the time is up, or all that is left is skipped
                self._take_finished(running)
        except BaseException:
            self._take_left(running)
            raise

    def _next(self, waiting: list[Cell], running: dict[Future[Done], Cell]) -> Cell | None:
        """Remove the next cell that can begin from those that wait, and return it."""
        if self._time_is_up():
            waiting.clear()
        unfinished = {cell.key for cell in (*waiting, *running.values())}
        for cell in list(waiting):
            if unfinished & {*cell.needs}:
                continue
            waiting.remove(cell)
            if not cell.why_idle(self.run.records()):
                return cell
            self._done += cell.weight
        return None

    def _order(self, cell: Cell, others: int) -> Order:
        return Order(self.source, cell.key, self.run.config, others)

    def _finish_all(self, running: dict[Future[Done], Cell]) -> None:
        try:
            while running:
                self._take_finished(running)
        except BaseException:
            self._take_left(running)
            raise

    def _take_finished(self, running: dict[Future[Done], Cell]) -> None:
        """Wait until a cell has finished, or a moment, and keep the results."""
        self._tell(running)
        finished, _ = wait(running, timeout=LOOK_EVERY_S, return_when=FIRST_COMPLETED)
        for future in finished:
            cell = running[future]
            self._take(cell, future)
            del running[future]
            self._done += cell.weight

    def _take_left(self, running: dict[Future[Done], Cell]) -> None:
        """Keep what has finished already when the run ends early."""
        self.run.begin()  # a full disk may have cut the last cell's records short
        for future, cell in running.items():
            if future.done() and not future.cancelled() and future.exception() is None:
                done = future.result()
                if not done.error and not done.ends and cell.key not in self.run.finished():
                    self._keep(done)

    def _take(self, cell: Cell, future: Future[Done]) -> None:
        try:
            done = future.result()
        except (KeyboardInterrupt, CancelledError):
            raise KeyboardInterrupt from None
        except Exception as error:  # its process is lost, or its result cannot be carried here
            self.run.failures.append(failure_of(cell.key, error))
            return
        where = "" if done.node == socket.gethostname() else f" (on {done.node})"
        if done.ends:
            ends = DataError if done.error else UsageError
            full = OSError(errno.ENOSPC, done.error) if done.full else None
            raise ends(f"{done.ends}{where}") from full
        if done.error:
            self.run.failures.append(Failure(cell.key, f"{done.error}{where}"))
            return
        self._keep(done)

    def _keep(self, done: Done) -> None:
        machines = self.run.config[MACHINES]
        if done.machine_id not in machines:
            machines[done.machine_id] = done.machine
            content = json.dumps(self.run.config, indent=2) + "\n"
            write_atomically(self.run.folder / "config.json", content)
        self.run.keep(done.key, done.records, done.machine_id)

    def _tell(self, running: dict[Future[Done], Cell]) -> None:
        """The progress of the run, with the finished shares of the cells that run now."""
        weights = {cell.key: cell.weight for cell in running.values()}
        notes = [note for note in read_notes(self.run.folder) if note.key in weights]
        now = sum(note.fraction * weights[note.key] for note in notes)
        shown = notes[0] if notes else None
        text = f"{shown.key}: {shown.text}" if shown and shown.text else next(iter(weights))
        more = f" and {len(running) - 1} more" if len(running) > 1 else ""
        self.on_progress((self._done + now) / self._total, f"{text}{more}")
