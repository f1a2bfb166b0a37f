"""The records of the HuggingGreen study: by question, task and depth, arm by arm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from statistics import mean
from typing import Any

from sparing.core.errors import DataError
from sparing.core.reading import parse_json
from sparing.core.record import Record
from sparing.measure.seeds import compared, quantity
from sparing.report.run import Run

PATCHES, ATTENTION, STAGES, BOXES = "patches", "attention", "stages", "boxes"
DENSE, AGAIN = "dense", "dense again"
FEWEST_PAIRS = 10


@dataclass(frozen=True)
class Group:
    """One question on one task at one depth."""

    question: str
    task: str
    depth: int
    records: tuple[Record, ...]

    @property
    def name(self) -> str:
        """For titles."""
        return f"{self.task}, {self.depth} layers"

    @cached_property
    def arms(self) -> list[str]:
        """Every arm that was trained, dense first, the others as the plan names them."""
        found = dict.fromkeys(str(r.labels["arm"]) for r in self.records if r.name == "accuracy")
        return sorted(found, key=lambda arm: (arm != DENSE, arm != AGAIN, _order(arm)))

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """The ways in which the energy that is compared was obtained: sensed where any was."""
        return compared(self.records)

    def find(self, name: str, **labels: Any) -> Record | None:
        """The last record of that name with these labels."""
        wanted = labels.items()
        found = [r for r in self.records if r.name == name and wanted <= r.labels.items()]
        return found[-1] if found else None

    def values(self, name: str, arm: str) -> dict[int, float]:
        """A quantity of an arm by seed; energies are sums of the components that are compared."""
        return quantity(self.records, name, arm)

    def mean(self, name: str, arm: str) -> float | None:
        """The mean over seeds."""
        found = self.values(name, arm)
        return mean(found.values()) if found else None

    @cached_property
    def pairs(self) -> int:
        """Seeds of the dense arm, or of the arm with most."""
        return max((len(self.values("accuracy", arm)) for arm in self.arms), default=0)

    def curve(self, arm: str) -> list[tuple[float, float]]:
        """(joules, validation accuracy) by epoch, the mean over seeds."""
        curves = [
            _told(record)
            for record in self.records
            if record.name == "curve" and record.labels.get("arm") == arm
        ]
        if not curves:
            return []
        shortest = min(len(curve) for curve in curves)
        counted = self._components
        return [
            (
                mean(_joules(curve[place]["energy"], counted) for curve in curves),
                mean(float(curve[place]["score"]) for curve in curves),
            )
            for place in range(shortest)
        ]

    @cached_property
    def _components(self) -> set[str]:
        return {
            f"{record.labels.get('component')}_j"
            for record in self.records
            if record.name == "train_energy_j" and record.obtained in self.kinds
        }


class GreenResults:
    """All groups of a run, and the pictures."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.margin = float(run.config.get("margin") or 0.01)

    @cached_property
    def groups(self) -> list[Group]:
        """In the order of the run."""
        found: dict[tuple[str, str, int], list[Record]] = {}
        for record in self.run.records:
            labels = record.labels
            if {"question", "task", "depth", "arm"} <= labels.keys():
                key = (str(labels["question"]), str(labels["task"]), int(labels["depth"] or 0))
                found.setdefault(key, []).append(record)
        order = {task: place for place, task in enumerate(self.run.config.get("tasks") or [])}
        keys = sorted(found, key=lambda key: (order.get(key[1], 99), key[2]))
        return [Group(*key, tuple(found[key])) for key in keys]

    def of(self, question: str) -> list[Group]:
        """The groups of a question that have a training."""
        return [g for g in self.groups if g.question == question and g.arms]

    @cached_property
    def estimated(self) -> bool:
        """Whether no energy was measured by a counter or integrated."""
        return all(group.kinds == ("estimated",) for group in self.groups)

    @cached_property
    def declared(self) -> str:
        """The arm that the goals speak of: the first that selects."""
        arms = [str(arm) for arm in self.run.config["arms"]]
        return arms[1] if len(arms) > 1 else ""

    @cached_property
    def meter_notes(self) -> list[str]:
        """What the meter had to say, each once, and which components are left out."""
        found = dict.fromkeys(
            str(record.labels.get("told"))
            for record in self.run.records
            if record.name == "meter_note"
        )
        left = {
            str(record.labels.get("component"))
            for group in self.groups
            for record in group.records
            if record.name == "train_energy_j" and record.obtained not in group.kinds
        }
        told = [f"Not in any sum, as it is an estimate beside sensors: {', '.join(sorted(left))}."]
        return [*found, *(told if left else [])]

    def pictures(self, task: str) -> list[tuple[Record, Mapping[str, Any]]]:
        """The pictures of a task with what was told of each."""
        return [
            (record, _told(record))
            for record in self.run.records
            if record.name == "picture" and record.labels.get("task") == task
        ]


def _told(record: Record) -> Any:
    try:
        return parse_json(str(record.labels.get("told")))
    except ValueError as error:
        raise DataError(f"record {record.name!r} has no sound content") from error


def _joules(energy: Mapping[str, float], counted: set[str]) -> float:
    return sum(value for name, value in energy.items() if name in counted)


_KINDS = ("fewer steps", "larger patches", "convolutions", "half the layers")


def _order(arm: str) -> tuple[int, str]:
    """Selections first, by their name; then what they are held against."""
    place = next((n for n, kind in enumerate(_KINDS, 1) if arm.startswith(kind)), 0)
    return place, arm
