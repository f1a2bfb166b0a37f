"""The records of the calculator study: means over seeds, by arm and set."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from sparing.core.record import Label, Record
from sparing.report.run import Run

SETS = ("in", "out", "long", "out+long")
_KEYS = ("arm", "set", "operands", "largest", "part", "place", "size", "of", "component")


class ValueResults:
    """All records of a run, asked for by name and labels."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._means: dict[tuple[object, ...], Record] = {}
        for each in run.records:
            if each.labels.get("over") == "seeds":
                self._means[_key(each.name, each.labels)] = each

    def mean(self, name: str, arm: str, **labels: Label) -> Record | None:
        """The mean over seeds of a quantity of an arm."""
        return self._means.get(_key(f"mean_{name}", {"arm": arm, **labels}))

    @cached_property
    def arms(self) -> list[str]:
        """Every arm that was judged, in the order of the configuration."""
        judged = {r.labels.get("arm") for r in self.run.records if r.name == "exact"}
        return [str(arm) for arm in self.run.config["arms"] if arm in judged]

    @cached_property
    def trained(self) -> list[str]:
        """The arms that were trained here."""
        return [arm for arm in self.arms if self.mean("train_time_s", arm) is not None]

    @cached_property
    def seeds(self) -> int:
        """The fewest trainings of an arm."""
        found = (self.mean("train_time_s", arm) for arm in self.trained)
        return min((each.count for each in found if each is not None), default=0)

    @cached_property
    def missing(self) -> list[str]:
        """The cells that were planned and have not ended."""
        done = {record.cell for record in self.run.records}
        return [str(key) for key in self.run.config.get("cells") or [] if key not in done]

    def by_seed(self, name: str, arm: str) -> dict[int, float]:
        """A quantity of an arm that has no other label, by seed."""
        return {
            int(r.labels["seed"] or 0): float(r.value)
            for r in self.run.records
            if r.name == name and r.labels.get("arm") == arm and r.value is not None
        }

    def energy(self, arm: str) -> Record | None:
        """Joules of a training: what was sensed, else what was estimated."""
        found = [
            record
            for key, record in self._means.items()
            if key[0] == "mean_train_energy_j" and record.labels.get("arm") == arm
        ]
        sensed = [each for each in found if each.obtained != "estimated"] or found
        if not sensed:
            return None
        total = sum(float(each.value or 0.0) for each in sensed)
        return Record("energy", total, "J", sensed[0].obtained, {"arm": arm})

    @cached_property
    def estimated(self) -> bool:
        """Whether no energy was sensed."""
        return all(
            record.obtained == "estimated"
            for record in self.run.records
            if record.name == "train_energy_j"
        )

    def line(self, name: str, arm: str, along: str, **labels: Label) -> list[tuple[int, Record]]:
        """A quantity along one label, such as the number of operands."""
        wanted = {"arm": arm, **labels}
        found = []
        for record in self._means.values():
            own = {k: v for k, v in record.labels.items() if k in _KEYS}
            at = own.pop(along, None)
            if record.name == f"mean_{name}" and own == wanted and isinstance(at, int):
                found.append((at, record))
        return sorted(found, key=lambda pair: pair[0])

    def language(self, name: str) -> Iterator[Record]:
        """Records of the language model of that name."""
        return (each for each in self.run.records if each.name == f"language_{name}")


def _key(name: str, labels: dict[str, Label]) -> tuple[object, ...]:
    return (name, *sorted((k, v) for k, v in labels.items() if k in _KEYS))
