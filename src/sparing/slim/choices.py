"""The forms that a user can choose from: speed, and whether a form keeps the floor."""

from __future__ import annotations

from dataclasses import dataclass

from sparing.core.record import Record
from sparing.experiment.claims import Estimate, Goal, Met
from sparing.experiment.records import RecordTable

ARMS = ("dense", "dense int8", "slim", "slim int8")


@dataclass(frozen=True)
class Choice:
    """One model in its fastest engine.

    ``speed`` is its speed over the fastest dense form in float32, None for that form itself.
    ``kept_share`` is the share of the dense score that it keeps on the test split, None if it was
    not scored. It has its 90 % interval: the lower end is the one-sided 95 % bound. ``keeps`` is
    whether that bound reaches the floor. ``disturbance`` is why its time cannot be used, if so.
    """

    arm: str
    engine: str
    speed: Record | None
    kept_share: Estimate | None
    keeps: Met
    disturbance: str = ""

    @property
    def factor(self) -> float:
        """The speed as a number; 1 for the fastest dense form."""
        return 1.0 if self.speed is None else float(self.speed.value or 0.0)


def choices(records: RecordTable, batch: int, floor: float) -> list[Choice]:
    """Each model of a run in its fastest engine at a batch size, the fastest model first."""
    listed = [_choice(records, arm, batch, floor) for arm in ARMS]
    known = [choice for choice in listed if choice is not None]
    return sorted(known, key=lambda choice: -choice.factor)


def recommended(listed: list[Choice]) -> Choice | None:
    """The fastest form that is shown to keep the floor: the dense form, if no other does.

    None if nothing was timed, or the machine was busy during timing.
    """
    if any(choice.disturbance for choice in listed):
        return None
    return next((choice for choice in listed if choice.keeps is True), None)


def kept_share(records: RecordTable, arm: str) -> Estimate | None:
    """The share of the dense score that a model keeps on the whole test split."""
    score = next((r for r in records.all("whole_score", arm=arm) if r.labels.get("primary")), None)
    gap = next(
        (r for r in records.all("whole_difference", arm=arm) if r.labels.get("primary")), None
    )
    if score is None or gap is None or gap.interval is None:
        return None
    dense = float(score.value or 0.0) - float(gap.value or 0.0)
    if dense <= 0:
        return None
    low, high = (1 + float(end) / dense for end in gap.interval)
    return Estimate(1 + float(gap.value or 0.0) / dense, (low, high))


def _choice(records: RecordTable, arm: str, batch: int, floor: float) -> Choice | None:
    speeds = records.all("speed_up", arm=arm, batch=batch)
    timed = [
        r for r in records.all("latency_ms", arm=arm, batch=batch) if r.labels.get("of") == "mean"
    ]
    engines = {str(r.labels.get("engine")) for r in timed}
    reference = sorted(engines - {str(r.labels.get("engine")) for r in speeds})
    if arm == "dense":
        if not reference:
            return None
        return Choice(arm, reference[0], None, Estimate(1.0, (1.0, 1.0)), True)
    speed = max(speeds, key=lambda record: float(record.value or 0.0), default=None)
    if speed is None:
        return None
    share = kept_share(records, arm)
    goal = Goal("share of the dense score kept", floor, "share")
    keeps = goal.decide(share.value, share.interval).met if share else "undecided"
    return Choice(
        arm, str(speed.labels.get("engine")), speed, share, keeps, records.disturbance(speed)
    )
