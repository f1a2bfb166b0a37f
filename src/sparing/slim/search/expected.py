"""What a surveyed plan would cost as it is served: with exits, and the dense model at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from sparing.slim.evidence.candidates import answers_at, boldest_thresholds
from sparing.slim.search.exits import Outcomes, leave_at
from sparing.slim.state import Surveyed, Way
from sparing.slim.steps import SOME


@dataclass(frozen=True)
class Rate:
    """The time of a dense form over that of the fastest one in float32, for single inputs.

    A plan in that engine and precision gains as much. ``deferred`` is the rate of the form that
    inputs go on to: in INT8 it is the dense model in float32.
    """

    plan: float
    deferred: float


def ways_of(
    seen: Outcomes,
    layers: int,
    dense: tuple[float, Float[Tensor, "examples classes"]],
    most: Mapping[float, float],
) -> tuple[Way, ...]:
    """The cheapest ways to serve a plan of so many layers, with exits and with a cascade.

    ``dense`` holds the mean FLOPs of the dense model and its answers, ``most`` for each epsilon the
    share of answers that may change. One way ends at the last layer, the other one at the dense
    model, both at the lowest threshold that changes no more.
    """
    whole, reference = dense
    logits = with_dense(seen, layers, reference)
    ways = []
    for cascade in (False, True):
        boldest = boldest_thresholds(logits, reference, list(most.values()), cascade=cascade)
        for epsilon, share in most.items():
            if share in boldest:
                _, exits = answers_at(logits, boldest[share], cascade=cascade)
                flops, deferred = spent(seen, layers, exits)
                ways.append(Way(epsilon, flops / whole, deferred))
    return tuple(ways)


def with_dense(
    seen: Outcomes, layers: int, reference: Float[Tensor, "examples classes"]
) -> Float[Tensor, "examples exits classes"]:
    """The answers at a plan's exits up to so many layers, and the dense model's behind them."""
    answers = seen.logits[: seen.exit_index(layers) + 1].transpose(0, 1)
    return torch.cat([answers, reference[:, None].to(answers.dtype)], dim=1)


def spent(seen: Outcomes, layers: int, exits: Int[Tensor, " examples"]) -> tuple[float, float]:
    """The mean FLOPs of a plan whose inputs take these exits, and the share that go on.

    ``exits`` count from 0, and those that go on to the dense model have the number after the last.
    """
    numbers = seen.exits[: seen.exit_index(layers) + 1]
    plan = replace(seen.plan.shortened(layers), exits=numbers[:-1], threshold=SOME)
    stops = torch.tensor(numbers)[exits.clamp(max=len(numbers) - 1)]
    flops = leave_at(seen, plan, stops).flops.mean()
    return float(flops), float((exits == len(numbers)).double().mean())


def expected_cost(
    point: Surveyed, epsilon: float, most: float, rates: Sequence[Rate]
) -> float | None:
    """The least time to serve a plan that changes at most that share, over the dense model's.

    Both are of single inputs, the dense model's in float32. A plan takes its share of FLOPs, and
    inputs that no exit is sure about take the dense model's time too, both at one of the ``rates``.
    None where the plan changes more in every way.
    """
    ways = [way for way in point.ways if way.epsilon == epsilon]
    if point.changed <= most:
        ways.append(Way(epsilon, point.cost_share, 0.0))
    costs = [r.plan * way.plan_share + r.deferred * way.deferred for way in ways for r in rates]
    return min(costs, default=None)


@dataclass(frozen=True)
class Expected:
    """The plan that is expected to be served fastest for an epsilon, and its cost."""

    point: Surveyed
    epsilon: float
    cost: float


def cheapest(
    points: Sequence[Surveyed], most: Mapping[float, float], rates: Sequence[Rate]
) -> Expected | None:
    """The plan with the least ``expected_cost``, for the first epsilon that it is below 1 for.

    ``most`` holds for each epsilon, in their order, the share of answers that may change. None if
    no plan is expected to be faster than the dense model in float32.
    """
    for epsilon, share in most.items():
        costs = ((expected_cost(point, epsilon, share, rates), point) for point in points)
        known = [Expected(point, epsilon, cost) for cost, point in costs if cost is not None]
        best = min(known, key=lambda one: one.cost, default=None)
        if best is not None and best.cost < 1:
            return best
    return None
