"""The costs and scores of an adaptive model's plans."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from sparing.core.errors import UsageError
from sparing.layers.plan import Plan


@dataclass(frozen=True)
class FrontierPoint:
    """A plan, its expected FLOPs as a share of the dense model's, and its score.

    ``score`` is the task's metric on the split that the frontier was measured on; None where it was
    not measured.
    """

    plan: Plan
    cost_share: float
    score: float | None = None

    def __post_init__(self) -> None:
        if not 0 < self.cost_share < math.inf:
            raise UsageError(f"a plan's share of the FLOPs must be above 0; got {self.cost_share}")

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "plan": self.plan.to_dict()}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> FrontierPoint:
        """The inverse of ``to_dict``."""
        try:
            return cls(**{**content, "plan": Plan.from_dict(content["plan"])})
        except (TypeError, KeyError) as error:
            raise UsageError(f"not a point of a frontier: {error}") from error


def by_score(point: FrontierPoint, whole: FrontierPoint) -> tuple[float, float]:
    """Unmeasured plans come last, but for the whole model, the baseline of all."""
    unknown = 1.0 if point is whole else -1.0
    return (point.score if point.score is not None else unknown, point.cost_share)
