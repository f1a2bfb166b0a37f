"""How far a run is, read from its folder while another process goes on with it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sparing.core.errors import DataError
from sparing.core.reading import read_json
from sparing.experiment.parallel.running import DRIVER, Note, read_notes
from sparing.experiment.run import existing_records, read_config


@dataclass(frozen=True)
class Status:
    """A run's cells by state; ``running`` are notes of the processes that run them.

    ``driver`` is the note of the process that does the run, None where none does. Where one process
    does everything, its note says which cell it is at.
    """

    study: str
    folder: Path
    planned: int
    done: int
    failed: tuple[str, ...]
    running: tuple[Note, ...]
    driver: Note | None

    @property
    def waiting(self) -> int:
        """Cells that nobody has begun."""
        return max(0, self.planned - self.done - len(self.failed) - len(self.running))

    @property
    def seconds_left(self) -> float | None:
        """An estimate; None where nothing runs, or has run for long enough."""
        return None if self.driver is None else self.driver.seconds_left

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        counts = {"planned": self.planned, "done": self.done, "waiting": self.waiting}
        return {
            "study": self.study,
            "folder": str(self.folder),
            **counts,
            "failed": list(self.failed),
            "running": [asdict(note) for note in self.running],
            "driver": None if self.driver is None else asdict(self.driver),
            "seconds_left": self.seconds_left,
        }


def status_of(folder: Path) -> Status:
    """The state of the run in a folder; nothing is locked or changed.

    Raises ``DataError`` where the folder holds no run.
    """
    config = read_config(folder)
    planned = [str(key) for key in config.get("cells") or []]
    done = existing_records(folder)[1] & {*planned}
    notes = [note for note in read_notes(folder) if note.is_alive]
    driver = next((note for note in notes if note.key == DRIVER), None)
    running = tuple(note for note in notes if note.key != DRIVER) if driver else ()
    failed = tuple(key for key in _failed(folder) if key not in done)
    return Status(str(config["study"]), folder, len(planned), len(done), failed, running, driver)


def _failed(folder: Path) -> list[str]:
    try:
        return [str(entry["cell"]) for entry in read_json(folder / "failed.json")]
    except (DataError, KeyError, TypeError):
        return []
