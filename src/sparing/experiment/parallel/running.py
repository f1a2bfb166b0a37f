"""Notes on the cells that run now: small files in the run's folder, for other processes to read.

They hold nothing that a run depends on. One that cannot be written, or is left by a process that
was killed, does no harm.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import psutil

from sparing.core.errors import DataError
from sparing.core.progress import Progress
from sparing.core.reading import read_json
from sparing.core.scratch import sweep
from sparing.core.writing import replace_quickly

RUNNING = ".running"
EVERY_S = 1.0
SILENCE_S = 600.0  # of a process on another node that is still taken to run
DRIVER = "driver"


@dataclass(frozen=True)
class Note:
    """What one process does now: a cell by its key, or all of them where it is the driver.

    ``since`` and ``updated`` are seconds since the epoch. ``fraction`` is the finished share,
    ``began`` was that at the start.
    """

    key: str
    node: str
    pid: int
    since: float
    updated: float
    fraction: float = 0.0
    text: str = ""
    began: float = 0.0

    @property
    def seconds_left(self) -> float | None:
        """An estimate from the progress so far; None before there is any."""
        made, took = self.fraction - self.began, self.updated - self.since
        return took * (1 - self.fraction) / made if made > 0.01 and took > 1 else None

    @property
    def is_alive(self) -> bool:
        """Whether its process runs; on another node, whether it was heard of lately."""
        if self.node == socket.gethostname():
            return bool(psutil.pid_exists(self.pid))
        return time.time() - self.updated < SILENCE_S


@contextmanager
def noted(folder: Path, key: str, every_s: float = EVERY_S) -> Iterator[Progress]:
    """Note in a run's folder that this process works on ``key``, until the block ends.

    Gives the function that updates the note with a finished share and a text.
    """
    name = "".join(c if c.isalnum() or c in ".-" else "-" for c in key)
    path = folder / RUNNING / f"{name}-{os.getpid()}.json"
    now = time.time()
    note = Note(key, socket.gethostname(), os.getpid(), now, now)
    _write(path, note)
    last, began = time.monotonic(), -1.0

    def tell(fraction: float, text: str) -> None:
        nonlocal last, began
        began = fraction if began < 0 else began
        if time.monotonic() - last >= every_s:
            last = time.monotonic()
            _write(
                path, replace(note, updated=time.time(), fraction=fraction, text=text, began=began)
            )

    try:
        yield tell
    finally:
        with contextlib.suppress(OSError):
            path.unlink()
            path.parent.rmdir()  # after the last note


def _write(path: Path, note: Note) -> None:
    """Replace the note in one step; a full disk must not end the work that it is about."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_quickly(path, json.dumps(asdict(note)))


def read_notes(folder: Path) -> list[Note]:
    """The notes in a run's folder; what is no note, or vanishes meanwhile, is left out."""
    notes = []
    for path in sorted((folder / RUNNING).glob("*.json")):
        with contextlib.suppress(DataError, TypeError):
            notes.append(Note(**read_json(path)))
    return notes


def drop_notes(folder: Path) -> None:
    """Remove the notes of an earlier process that was killed."""
    left = folder / RUNNING
    with contextlib.suppress(OSError):
        for path in () if left.is_symlink() else left.glob("*.json"):
            path.unlink()
        sweep(left, ".")
        left.rmdir()
