"""Every plan that one adaptive model can run, with its cost and its score on held-out data."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from torch import Tensor

from sparing.core.record import Label, Record
from sparing.layers.plan import Plan, narrowed, narrowing
from sparing.slim.answer import CLASS, Answer
from sparing.slim.search.exits import (
    THRESHOLDS,
    Decision,
    Outcomes,
    decide,
    dense_flops,
    left_at_random,
    outcomes,
    score,
)
from sparing.tasks import Examples, Task
from sparing.transfer.adaptive import AdaptiveClassifier

Kind = Literal["exits", "depth", "random"]
NARROW_ABOVE = (0.6, 0.8, 0.9, 0.95, 0.99)


@dataclass(frozen=True)
class Variant:
    """Widths and tokens of a plan. Each needs a run; depths and thresholds do not.

    ``narrow`` is the share of the plan's widths that sure inputs use after layer ``narrow_after``;
    1 keeps all widths the same. ``confidence`` is the plan's.
    """

    width: float
    tokens_kept: float = 1.0
    tokens_after: int = 2
    narrow: float = 1.0
    narrow_after: int = 2
    confidence: str = "softmax"

    def plan(self, model: AdaptiveClassifier) -> Plan:
        """The plan of this variant to the model's end."""
        whole = narrowed(model.encoder.sizes, self.width)
        plan = replace(
            whole,
            tokens_kept=self.tokens_kept,
            tokens_after=self.tokens_after,
            confidence=self.confidence,
        )
        if self.narrow == 1:
            return plan
        return narrowing(plan, self.narrow, after=self.narrow_after, above=NARROW_ABOVE[0])


@dataclass(frozen=True, eq=False)
class Point:
    """One plan on held-out data: its score, and its FLOPs as a share of the dense model's.

    ``divergence`` is the mean distance of its answers from the dense model's (of classes the KL
    divergence in nats), and ``changed`` the share of answers that are others.
    ``kind`` is "exits" if sure inputs exit or continue narrower, and "depth" if all exit after one
    layer. "random" is the control: the same exit rates, on inputs sampled at random.
    """

    kind: Kind
    variant: Variant
    plan: Plan
    score: float
    cost_share: float
    layers: float
    divergence: float
    changed: float

    def record(self, on_front: bool) -> Record:
        """The point as a record of the study."""
        labels: dict[str, Label] = {
            "kind": self.kind,
            "width": round(self.variant.width, 4),
            "tokens_kept": self.variant.tokens_kept,
            "depth": self.plan.layers,
            "first_exit": min(self.plan.stops, default=0),
            "threshold": self.plan.threshold,
            "cost_share": self.cost_share,
            "mean_layers": self.layers,
            "divergence": self.divergence,
            "changed": self.changed,
            "on_front": on_front,
            "plan": json.dumps(self.plan.to_dict()),
        }
        if self.plan.narrows:
            labels |= {
                "narrow": round(self.variant.narrow, 4),
                "narrow_after": self.plan.narrow_after,
                "narrow_above": self.plan.narrow_above,
            }
        return Record("frontier_score", self.score, "score", "measured", labels)


def survey(
    model: AdaptiveClassifier,
    task: Task,
    examples: Examples,
    variants: Sequence[Variant],
    reference: Tensor,
    whole: float | None = None,
    answer: Answer = CLASS,
) -> Iterator[tuple[Variant, Outcomes, list[Point]]]:
    """Run every variant once over held-out examples and evaluate all depths and thresholds.

    ``reference`` are the dense model's answers to them, and ``whole`` its mean FLOPs, by default
    those of this model.
    """
    if whole is None:
        whole = float(dense_flops(model, examples).mean())
    for variant in variants:
        seen = outcomes(model, task, examples, variant.plan(model))
        yield variant, seen, points_of(task, variant, seen, (whole, reference), answer)


def points_of(
    task: Task,
    variant: Variant,
    seen: Outcomes,
    dense: tuple[float, Tensor],
    answer: Answer = CLASS,
) -> list[Point]:
    """All plans of one variant; ``dense`` holds ``whole`` and ``reference`` of ``survey``."""
    end, sure = seen.plan.layers, seen.plan.narrow_after
    points = []
    for depth in seen.exits:
        # one width for all, unless inputs can continue narrower before the end
        for above in NARROW_ABOVE if 0 < sure < depth else (None,):
            decision = decide(seen, layers=depth, narrow_above=above)
            kind: Kind = "exits" if decision.plan.narrows else "depth"
            points.append(_point(task, kind, variant, (seen, decision), dense, answer))
    for depth in [exit_ for exit_ in seen.exits if answer.exits and exit_ >= end - 1]:
        for first in [exit_ for exit_ in seen.exits if exit_ < depth]:
            for above in NARROW_ABOVE if 0 < sure < depth else (None,):
                for threshold in THRESHOLDS:
                    decision = decide(seen, threshold, first, depth, above)
                    points.append(_point(task, "exits", variant, (seen, decision), dense, answer))
    return points


def random_control(
    task: Task, seen: Outcomes, point: Point, whole: float, reference: Tensor, draws: int = 20
) -> Point:
    """The mean over samples of random exits with the exit rates of the point."""
    decision = decided(seen, point)
    drawn = [left_at_random(seen, decision, seed) for seed in range(draws)]
    mean = sum(score(task, draw, seen.labels) for draw in drawn) / draws
    control = _point(task, "random", point.variant, (seen, drawn[0]), (whole, reference), CLASS)
    return replace(control, score=mean)


def decided(seen: Outcomes, point: Point) -> Decision:
    """The decision of one point of a survey for all inputs."""
    plan = point.plan
    first = min(plan.stops, default=1)
    return decide(seen, plan.threshold, first, plan.layers, plan.narrow_above)


def best(points: Sequence[Point]) -> list[Point]:
    """The points that no other beats in both cost and score, cheapest first."""
    front: list[Point] = []
    for point in sorted(points, key=lambda point: (point.cost_share, -point.score)):
        if not front or point.score > front[-1].score:
            front.append(point)
    return front


def _point(
    task: Task,
    kind: Kind,
    variant: Variant,
    decided: tuple[Outcomes, Decision],
    dense: tuple[float, Tensor],
    answer: Answer,
) -> Point:
    (seen, decision), (whole, reference) = decided, dense
    return Point(
        kind=kind,
        variant=variant,
        plan=decision.plan,
        score=score(task, decision, seen.labels),
        cost_share=float(decision.flops.mean()) / whole,
        layers=float(decision.layers.double().mean()),
        divergence=answer.distance(decision.logits, reference),
        changed=answer.changed(decision.logits, reference),
    )
