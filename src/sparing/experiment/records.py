"""The records of a run, looked up by name and labels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from sparing.core.record import Label, Record
from sparing.measure.load import disturbances

NOT_MEASURED = ("analysis", "arithmetic")  # computed from other cells, or from the paper
CHANGED = "+"  # the end of a commit where the code had further changes


def measured(records: Iterable[Record]) -> list[Record]:
    """The records that some machine measured."""
    return [r for r in records if r.obtained != "paper" and r.cell not in NOT_MEASURED]


def uncommitted(records: Iterable[Record]) -> list[Record]:
    """The measured values of code with changes that no commit holds: nobody can repeat them."""
    return [r for r in measured(records) if r.value is not None and r.commit.endswith(CHANGED)]


class RecordTable:
    """One run's own records, indexed by name.

    Where a cell was measured twice (a run that was resumed) the later record counts. Figures
    that papers print are in ``claims`` and nowhere else. ``arms`` are those that the run names,
    then those that records add.
    """

    def __init__(self, records: Sequence[Record], arms: Iterable[str] = ()) -> None:
        self.claims = [record for record in records if record.obtained == "paper"]
        run_records = [_real(record) for record in records if record.obtained != "paper"]
        self._busy = disturbances(run_records)
        self._by_name: dict[str, list[Record]] = {}
        self.records = _latest(run_records)
        for record in self.records:
            self._by_name.setdefault(record.name, []).append(record)
        named = [record.labels.get("arm") for record in run_records]
        seen = (arm for arm in named if isinstance(arm, str))
        self.arms: list[str] = list(dict.fromkeys([*arms, *seen]))

    def all(self, name: str, **labels: Label) -> list[Record]:
        """All records of that name that carry these labels and have a value."""
        return [r for r in self.matching(name, labels) if r.value is not None]

    def find(self, name: str, **labels: Label) -> Record | None:
        """The newest such record with a value, or None."""
        records = self.all(name, **labels)
        return records[-1] if records else None

    def exact(self, name: str, **labels: Label) -> Record | None:
        """The newest record with a value that has these labels and no others, or None."""
        records = reversed(self.all(name, **labels))
        return next((r for r in records if len(r.labels) == len(labels)), None)

    def value(self, name: str, **labels: Label) -> float | None:
        """Its value, or None."""
        record = self.find(name, **labels)
        return None if record is None else record.value

    def empty(self, name: str, **labels: Label) -> Record | None:
        """A record that was written without a value, or None."""
        return next((r for r in self.matching(name, labels) if r.value is None), None)

    def matching(self, name: str, labels: dict[str, Label]) -> list[Record]:
        """All records of that name that carry these labels, with a value or without.

        A label of None is one that the record may lack too.
        """
        pairs = labels.items()
        named = self._by_name.get(name, [])
        return [r for r in named if all(r.labels.get(key) == value for key, value in pairs)]

    def values_of(self, name: str, label: str, **labels: Label) -> list[Label]:
        """The values of one label among the records of a name with these others, in their order."""
        records = (record for record in self.all(name, **labels) if label in record.labels)
        return list(dict.fromkeys(record.labels[label] for record in records))

    def disturbance(self, record: Record) -> str:
        """Why this time decides nothing: what else the machine did; empty where it was quiet."""
        return str(record.labels.get("disturbance") or self._busy.get(record.cell, ""))


def _latest(records: list[Record]) -> list[Record]:
    """One record for each name and labels, the newest, in the order of their last writing."""
    latest: dict[tuple[str, ...], Record] = {}
    for record in records:
        key = (record.name, *sorted(map(repr, record.labels.items())))
        latest.pop(key, None)
        latest[key] = record
    return list(latest.values())


def _real(record: Record) -> Record:
    """The record with floats in the place of integers."""
    value, interval = record.value, record.interval
    if isinstance(value, int) or (interval and any(isinstance(end, int) for end in interval)):
        ends = (float(interval[0]), float(interval[1])) if interval else None
        return replace(record, value=None if value is None else float(value), interval=ends)
    return record
