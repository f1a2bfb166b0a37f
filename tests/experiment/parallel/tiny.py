"""A study of cells that take a moment, for tests of the engines; other processes import it."""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from sparing.core.progress import waiting
from sparing.core.record import Record
from sparing.core.writing import write_atomically
from sparing.experiment.claims import GoalResult
from sparing.experiment.conduct import Experiment
from sparing.experiment.registry import Study
from sparing.experiment.run import Cell
from sparing.experiment.study import base_config, plain

STUDY = Study(__name__, __name__, "")
ROOT, SQUARE, LAST = "root", "square", "last"


@dataclass(frozen=True)
class Options:
    """``faults`` are by cell: ``raise``, ``die`` (each time), ``die once``, ``full``, ``meet``.

    Cells that ``meet`` wait until two of them are there. Those that ``write`` put 256 KiB into the
    run's folder.
    """

    squares: int = 4
    seconds: float = 0.0
    faults: Mapping[str, str] = field(default_factory=dict)


def prepare(options: Options, folder: Path, data: Path | None = None) -> Experiment:
    config = base_config(__name__, plain(asdict(options) | {"faults": {}}))
    if data is not None:
        config |= {"data": {"numbers": (data / "numbers").read_text()}}
    return Experiment(__name__, config, lambda opened: cells_of(options, folder), goals)


def cells_of(options: Options, folder: Path) -> list[Cell]:
    """A cell that is alone, one that others need, squares, and another alone."""
    root = f"beside/{ROOT}"
    squares = [
        _cell(options, folder, f"beside/{SQUARE}/{number}", float(number**2), (root,))
        for number in range(options.squares)
    ]
    return [
        _cell(options, folder, "alone/first", 1.0, None),
        *reversed(squares),  # they wait for what comes later
        _cell(options, folder, root, 2.0, ()),
        _cell(options, folder, f"alone/{LAST}", 3.0, None),
    ]


def _cell(
    options: Options, folder: Path, key: str, value: float, needs: tuple[str, ...] | None
) -> Cell:
    def work() -> list[Record]:
        log = folder / "models" / "spans"
        log.mkdir(parents=True, exist_ok=True)
        started = time.time()
        _fault(options.faults.get(key, ""), log / key.replace("/", "-"))
        if options.faults.get(key) == "write":
            write_atomically(folder / "models" / f"{key.replace('/', '-')}.bin", b"1" * 2**18)
        if options.faults.get(key) == "meet":
            (log / f"met-{os.getpid()}").touch()
            while len([*log.glob("met-*")]) < 2:
                assert time.time() < started + 60
                time.sleep(0.02)
        tell = waiting()
        if tell is not None:
            tell(0.5, "half of it")
        time.sleep(options.seconds)
        name = f"{key.replace('/', '-')}-{started}-{time.time()}-{os.getpid()}"
        (log / name).touch()
        return [
            Record("score", value, "", "measured", {"of": key}),
            Record("took", time.time() - started, "s", "measured", {"of": key}),
        ]

    return Cell(key, work, beside=needs is not None, needs=needs or ())


def _fault(fault: str, mark: Path) -> None:
    if fault == "raise":
        raise ValueError("it cannot be done")
    if fault == "full":
        raise OSError(errno.ENOSPC, "No space left on device")
    if fault == "die" or (fault == "die once" and not mark.exists()):
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def spans(folder: Path) -> dict[str, tuple[float, float, int]]:
    """When each cell ran (from, to, in which process), by its name with hyphens."""
    by_name: dict[str, Any] = {}
    for path in (folder / "models" / "spans").glob("*.*"):
        name, start, end, pid = path.name.rsplit("-", 3)
        by_name[name] = float(start), float(end), int(pid)
    return by_name


def goals(records: Sequence[Record]) -> list[GoalResult]:
    return []
