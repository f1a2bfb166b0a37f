"""A run in several processes: process 0 does the cells, and all train together where one says so.

The others follow it, in ``following``: what process 0 announces here they do at the same time.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeVar

from sparing.core.ranks import alone, first, wait_for_first, world
from sparing.core.record import Record

T = TypeVar("T")
PROCESSES = "processes"  # the record of a cell that several processes trained


@dataclass
class _Running:
    """The cell that process 0 does now, and whether a training of it was shared."""

    key: str
    shared: bool = False


_running: ContextVar[_Running | None] = ContextVar("sparing_running", default=None)


def announced(key: str = "") -> str:
    """The key of the cell that process 0 announces, in all processes; empty at the end of a run."""
    wait_for_first()
    return first(lambda: key)


def jointly(training: Callable[[], T]) -> T:
    """What the training of the running cell returns, which all processes of the run take part in.

    It is the ``together`` of that cell (see ``trained_cell``), and returns None where nothing is to
    be trained. An error in any process is raised in all of them.
    """
    running = _running.get()
    if running is None:
        return training()
    from sparing.train.processes import errors_shared

    with alone(False), errors_shared():
        announced(running.key)
        result = training()
        running.shared = result is not None
        return result


def led(key: str, work: Callable[[], list[Record]]) -> list[Record]:
    """The records of a cell: only in its training the other processes do not wait for this one."""
    if world() == 1:
        return work()
    running = _Running(key)
    token = _running.set(running)
    try:
        with alone():
            records = work()
    finally:
        _running.reset(token)
    count = [Record(PROCESSES, float(world()), "", "measured")] if running.shared else []
    return [*records, *count]


def ends_together(error: Exception) -> bool:
    """Whether all processes of the run end with this error."""
    if world() == 1:
        return False
    from sparing.train.processes import known_to_all

    return known_to_all(error)
