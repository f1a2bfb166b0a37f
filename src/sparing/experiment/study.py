"""What every study returns, and the files that it writes beside its records."""

from __future__ import annotations

import hashlib
import json
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparing.core.paths import expanded
from sparing.core.record import Record
from sparing.core.version import __version__
from sparing.core.writing import write_atomically
from sparing.experiment.claims import GoalResult
from sparing.experiment.records import uncommitted
from sparing.experiment.run import DATA, Failure, refuse_strangers
from sparing.experiment.run import require_same as require_same_run
from sparing.measure.load import disturbance_words
from sparing.measure.machine import commit, machine, machine_id

if TYPE_CHECKING:
    from sparing.tasks import Task

SHOWN_GOALS = 30
WEIGHTS = ("*.safetensors", "*.bin")


@dataclass(frozen=True)
class StudyResult:
    """A finished study: its folder, records, goals, and the cells that failed."""

    name: str
    folder: Path
    config: dict[str, Any]
    records: list[Record]
    goals: list[GoalResult]
    failures: list[Failure]

    @property
    def disturbance(self) -> str:
        """The warning that the machine was busy while times were taken, else empty."""
        return disturbance_words(self.records)

    def to_dict(self) -> dict[str, Any]:
        """For JSON: a busy machine and goals first, then failed cells and the folder."""
        return {
            "disturbance": self.disturbance,
            "study": self.name,
            "folder": str(self.folder),
            "goals": [goal.to_dict() for goal in self.goals],
            "failed": [vars(failure) for failure in self.failures],
            "records": len(self.records),
            "uncommitted_records": len(uncommitted(self.records)),
        }

    def goal_lines(self) -> list[str]:
        """The goals as aligned text: name, target, value, interval, whether it is met, its need."""
        heads = ("goal", "target", "value", "interval", "met", "would need")
        rows = [heads, *map(_goal_row, self.goals)]
        rows = rows if any(goal.need for goal in self.goals) else [row[:-1] for row in rows]
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        cells = [[text.ljust(width) for text, width in zip(r, widths, strict=True)] for r in rows]
        return ["  ".join(row).rstrip() for row in cells] if self.goals else []

    def __str__(self) -> str:
        """A busy machine, the goals and the folder, in 40 lines at most."""
        lines = self.goal_lines()
        if len(lines) > SHOWN_GOALS:
            lines = [*lines[:SHOWN_GOALS], f"and {len(lines) - SHOWN_GOALS} goals more"]
        lines = [self.disturbance, *lines] if self.disturbance else lines
        lines += [f"failed: {failure.cell}" for failure in self.failures[:5]]
        return "\n".join([*lines, f"{self.name} in {self.folder}"])


def _goal_row(goal: GoalResult) -> tuple[str, ...]:
    value = "not measured" if goal.value is None else f"{goal.value:.3f}"
    interval = f"{goal.interval[0]:.3f} to {goal.interval[1]:.3f}" if goal.interval else ""
    met = goal.met if isinstance(goal.met, str) else "yes" if goal.met else "no"
    target, need = f"{goal.target:g} {goal.unit}", str(goal.need or "")
    return goal.name, target, value, interval, met, need


def base_config(
    study: str, identity: dict[str, Any], tasks: Iterable[Task] = (), models: Iterable[str] = ()
) -> dict[str, Any]:
    """What every run's configuration holds: its identity, data, machine, versions and command.

    Digests of the tasks, and of ``models`` that are folders, are kept: other files make another
    run. Of paths in the command only the last part is kept: a folder of this machine means nothing
    elsewhere.
    """
    facts = machine()
    program = Path(sys.argv[0]).name
    given = sys.argv[1:] if program == "sparing" else []
    arguments = [
        Path(argument).name if Path(argument).is_absolute() else argument for argument in given
    ]
    return {
        "study": study,
        "identity": identity,
        DATA: {task.name: task.digest for task in tasks} | _weights(models),
        "machine": facts,
        "machine_id": machine_id(facts),
        "commit": commit(),
        "command": shlex.join(["sparing", *arguments]) if arguments else "",
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "sparing_version": __version__,
    }


def _weights(models: Iterable[str]) -> dict[str, str]:
    """Digests of the weights of the models that are folders here."""
    digests: dict[str, str] = {}
    for name in dict.fromkeys(filter(None, models)):
        folder = expanded(name)
        digest = hashlib.blake2b(digest_size=8)
        files = sorted(path for kind in WEIGHTS for path in folder.glob(kind))
        for path in files:
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "blake2b").digest())
        if files:
            known = f"the model {folder.resolve().name}"  # two may have one name
            digests[known] = digests.get(known, "") + digest.hexdigest()
    return digests


def require_same(folder: Path, config: Mapping[str, Any], *, by_task: bool = False) -> None:
    """Raise ``UsageError`` where a folder holds another run, or something else than a run."""
    refuse_strangers(folder)
    require_same_run(folder, dict(config), by_task=by_task)


def write_goals(folder: Path, goals: Sequence[GoalResult]) -> None:
    """Write the goals beside the records."""
    content = json.dumps({"goals": [goal.to_dict() for goal in goals]}, indent=2, allow_nan=False)
    write_atomically(folder / "goals.json", content + "\n")


def plain(value: Any) -> Any:
    """The value in the types of JSON."""
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, tuple | list):
        return [plain(entry) for entry in value]
    return value
