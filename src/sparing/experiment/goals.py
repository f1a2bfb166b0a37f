"""Goals: what a study set out to show, with the verdict the numbers give."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

Met = bool | Literal["undecided"]


@dataclass(frozen=True)
class Goal:
    """A declared aim: ``value`` must be at least (or at most) ``target``."""

    name: str
    target: float
    unit: str
    at_most: bool = False
    required: bool = False

    def judge(
        self,
        value: float | None,
        interval: tuple[float, float] | None,
        disturbance: str = "",
    ) -> GoalResult:
        """Met when the whole interval satisfies the target, missed when none of it does.

        ``disturbance`` says why a time decides nothing, such as a machine that was busy.
        """
        met: Met = "undecided"
        if interval is not None and not disturbance:
            low, high = interval
            good, bad = (
                (high <= self.target, low > self.target)
                if self.at_most
                else (low >= self.target, high < self.target)
            )
            met = True if good else False if bad else "undecided"
        note = f"not decided: the machine was busy ({disturbance})" if disturbance else ""
        return GoalResult(
            self.name, self.target, self.unit, value, interval, met, self.required, note
        )


@dataclass(frozen=True)
class GoalResult:
    """A goal beside what was measured; ``note`` says why a time does not decide it, else empty."""

    name: str
    target: float
    unit: str
    value: float | None
    interval: tuple[float, float] | None
    met: Met
    required: bool = False
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """For JSON, without a note where there is none."""
        return {name: value for name, value in asdict(self).items() if name != "note" or value}
