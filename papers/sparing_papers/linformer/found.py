"""Records of an analysis of the Linformer study, as its goals ask for them."""

from __future__ import annotations

from collections.abc import Sequence

from sparing.core.record import Label, Record
from sparing.experiment.claims import Goal, GoalResult
from sparing_papers.long_range.arms import DENSE, UNIFORM

FEWEST_SEEDS = 3


class Found:
    """Records of an analysis, asked for by name and labels."""

    def __init__(self, records: Sequence[Record]) -> None:
        self.records = records

    def one(self, name: str, **labels: Label) -> Record | None:
        """The last record of that name whose labels include these."""
        wanted = labels.items()
        fits = [r for r in self.records if r.name == name and wanted <= r.labels.items()]
        return fits[-1] if fits else None

    def decides(self, question: str, task: str) -> bool:
        """Whether the task tells mechanisms apart, by enough seeds."""
        told = self.one("decides", question=question, task=task)
        return told is not None and bool(told.value) and told.count >= FEWEST_SEEDS

    def apart(self, name: str, labels: dict[str, Label], sign: int = 1) -> bool:
        """Whether dense attention has surely more than ``uniform``, or less with ``sign`` -1."""
        gap = self.one(f"{name}_difference", **{**labels, "arm": DENSE, "less": UNIFORM})
        if gap is None or gap.interval is None or gap.count < FEWEST_SEEDS:
            return False
        return gap.interval[0] > 0 if sign > 0 else gap.interval[1] < 0

    def every(self, name: str, label: str) -> list[Label]:
        """The values of a label among the records of that name, in their order."""
        found = (r.labels[label] for r in self.records if r.name == name and label in r.labels)
        return list(dict.fromkeys(found))


def judged(goal: Goal, record: Record | None) -> GoalResult:
    """The goal beside a record and its interval; undecided without one."""
    if record is None or record.value is None:
        return goal.judge(None, None)
    return goal.judge(float(record.value), record.interval)
