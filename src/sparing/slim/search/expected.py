"""What a surveyed plan would cost as it is served: with exits, and the dense model at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from sparing.slim.answer import CLASS, Answer
from sparing.slim.evidence.candidates import THRESHOLDS, answers_at
from sparing.slim.search.exits import Outcomes, leave_at
from sparing.slim.state import Surveyed, Way
from sparing.slim.steps import SOME


def ways_of(
    seen: Outcomes,
    layers: int,
    dense: tuple[float, Float[Tensor, "examples classes"]],
    most: Mapping[float, float],
    answer: Answer = CLASS,
) -> tuple[Way, ...]:
    """The cheapest ways to serve a plan of so many layers, with exits and with a cascade.

    ``dense`` holds the mean FLOPs of the dense model and its answers, ``most`` for each epsilon the
    share of answers that may change. One way ends at the last layer, the other one at the dense
    model, both at the lowest threshold that changes no more. Empty where inputs may not exit.
    """
    if not answer.exits:
        return ()
    whole, reference = dense
    logits, numbers = with_dense(seen, layers, reference)
    ways = []
    for cascade in (False, True) if len(numbers) > 1 else (True,):
        tried = [answers_at(logits, threshold, cascade=cascade) for threshold in THRESHOLDS]
        changed = [answer.changed(answers, reference) for answers, _ in tried]
        for epsilon, share in most.items():
            fits = [exits for (_, exits), has in zip(tried, changed, strict=True) if has <= share]
            for exits in fits[:1]:
                flops, deferred = spent(seen, layers, exits)
                ways.append(Way(epsilon, flops / whole, deferred))
    return tuple(ways)


def with_dense(
    seen: Outcomes, layers: int, reference: Float[Tensor, "examples classes"]
) -> tuple[Float[Tensor, "examples exits classes"], tuple[int, ...]]:
    """The answers at a plan's exits up to so many layers, the dense model's last; the layers."""
    numbers = tuple(number for number in seen.exits if number <= layers)
    answers = seen.logits[: len(numbers)].transpose(0, 1)
    return torch.cat([answers, reference[:, None].to(answers.dtype)], dim=1), numbers


def spent(seen: Outcomes, layers: int, exits: Int[Tensor, " examples"]) -> tuple[float, float]:
    """The mean FLOPs of a plan whose inputs take these exits, and the share that go on.

    ``exits`` count from 0, and those that go on to the dense model have the number after the last.
    """
    numbers = [number for number in seen.exits if number <= layers]
    plan = replace(seen.plan.shortened(layers), exits=tuple(numbers[:-1]), threshold=SOME)
    stops = torch.tensor(numbers)[exits.clamp(max=len(numbers) - 1)]
    flops = leave_at(seen, plan, stops).flops.mean()
    return float(flops), float((exits == len(numbers)).double().mean())


def expected_cost(point: Surveyed, epsilon: float, most: float, rate: float) -> float | None:
    """The least time to serve a plan that changes at most that share, over the dense model's.

    Both times are of single inputs. The plan's is its share of FLOPs, times ``rate``: the time of
    the dense model in its fastest precision over that in float32. Inputs that no exit is sure about
    take the dense model's time in float32 too. None where the plan changes more in every way.
    """
    ways = [way for way in point.ways if way.epsilon == epsilon]
    costs = [rate * way.plan_share + way.deferred for way in ways]
    if point.changed <= most:
        costs.append(rate * point.cost_share)
    return min(costs, default=None)


@dataclass(frozen=True)
class Expected:
    """The plan that is expected to be served fastest for an epsilon, and its cost."""

    point: Surveyed
    epsilon: float
    cost: float


def cheapest(
    points: Sequence[Surveyed], most: Mapping[float, float], rate: float
) -> Expected | None:
    """The plan with the least ``expected_cost``, for the first epsilon that it is below 1 for.

    ``most`` holds for each epsilon, in their order, the share of answers that may change. None if
    no plan is expected to be faster than the dense model in float32.
    """
    for epsilon, share in most.items():
        costs = ((expected_cost(point, epsilon, share, rate), point) for point in points)
        known = [Expected(point, epsilon, cost) for cost, point in costs if cost is not None]
        best = min(known, key=lambda one: one.cost, default=None)
        if best is not None and best.cost < 1:
            return best
    return None
