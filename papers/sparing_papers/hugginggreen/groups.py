"""The records of the HuggingGreen study by question, task and depth, variant by variant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import mean
from typing import Any

from sparing.core.errors import DataError
from sparing.core.reading import parse_json
from sparing.core.record import Label, Obtained, Record, least_sure
from sparing.experiment.records import RecordTable
from sparing.measure.seeds import compared, components, quantity
from sparing_papers.hugginggreen.names import AGAIN, DENSE

BASELINE_KINDS = ("fewer steps", "larger patches", "convolutions", "half the layers")
Entry = Mapping[str, Any]


@dataclass(frozen=True)
class Group:
    """One question on one task at one depth; ``tested`` counts the task's test images."""

    question: str
    task: str
    depth: int
    records: RecordTable
    tested: int = 1

    @property
    def name(self) -> str:
        """The name for titles: task and depth."""
        return f"{self.task}, {self.depth} layers"

    @property
    def labels(self) -> dict[str, Label]:
        """The labels that every record of the group has."""
        return {"question": self.question, "task": self.task, "depth": self.depth}

    @cached_property
    def kinds(self) -> tuple[Obtained, ...]:
        """How the compared energy was obtained: from sensors if there are any."""
        return compared(self.records.records)

    @property
    def obtained(self) -> Obtained:
        """The least certain of ``kinds``."""
        return self.kinds[-1]

    def obtained_of(self, name: str, *arms: str) -> Obtained:
        """How a quantity of some variants was obtained; for energies, of compared components."""
        records = [r for arm in arms for r in self.records.all(name, arm=arm)]
        energy = name.endswith("energy_j")
        return least_sure(r for r in records if not energy or r.obtained in self.kinds)

    @cached_property
    def arms(self) -> list[str]:
        """Every variant that was trained: dense, then selections, then their baselines."""
        return sorted(map(str, self.records.values_of("accuracy", "arm")), key=_order)

    @cached_property
    def pairs(self) -> int:
        """The number of seeds of the variant with most."""
        return max((len(self.values("accuracy", arm)) for arm in self.arms), default=0)

    def values(self, name: str, arm: str) -> dict[int, float]:
        """A quantity of a variant by seed; energies are sums of the compared components."""
        return quantity(self.records.records, name, arm)

    def mean(self, name: str, arm: str) -> float | None:
        """The mean of a quantity over a variant's seeds; None without a seed."""
        values = self.values(name, arm).values()
        return mean(values) if values else None

    def curves(self, arm: str) -> dict[int, list[Entry]]:
        """Validations of a variant by seed: epoch, score, FLOPs, and energy by component."""
        return {
            int(record.labels["seed"] or 0): content(record)
            for record in self.records.all("curve", arm=arm)
        }

    @cached_property
    def components(self) -> set[str]:
        """The components of energy that are compared."""
        return components(self.records.records)

    def joules(self, entry: Entry) -> float | None:
        """A training's energy until a validation; None if a compared component is missing."""
        spent: Mapping[str, float] = entry["energy"]
        keys = [f"{component}_j" for component in self.components]
        return sum(spent[key] for key in keys) if all(key in spent for key in keys) else None


def _order(arm: str) -> tuple[bool, bool, int, str]:
    kind = next((n for n, kind in enumerate(BASELINE_KINDS, 1) if arm.startswith(kind)), 0)
    return arm != DENSE, arm != AGAIN, kind, arm


def content(record: Record) -> Any:
    """The JSON content of a record; raises ``DataError`` if it is damaged."""
    try:
        return parse_json(str(record.labels.get("told")))
    except ValueError as error:
        raise DataError(f"record {record.name!r} has no sound content") from error


def groups(records: Sequence[Record], tested: Mapping[str, int]) -> list[Group]:
    """The records by question, task and depth; ``tested`` counts each task's test images."""
    parts: dict[tuple[str, str, int], list[Record]] = {}
    for record in records:
        labels = record.labels
        if {"question", "task", "depth", "arm"} <= labels.keys():
            key = (str(labels["question"]), str(labels["task"]), int(labels["depth"] or 0))
            parts.setdefault(key, []).append(record)
    return [Group(*key, RecordTable(part), tested.get(key[1], 1)) for key, part in parts.items()]
