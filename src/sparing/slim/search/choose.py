"""Choose the plan to build on: all plans are scored once, and a few are timed on real texts."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from sparing.core.errors import UsageError
from sparing.core.record import Label, Record
from sparing.layers.plan import Plan
from sparing.measure.inputs import SpeedUp, fastest, speed_up, time_inputs
from sparing.slim.engines import Runs
from sparing.slim.models import inputs_of
from sparing.slim.search.exits import Outcomes
from sparing.slim.search.frontier import (
    NEAR,
    Point,
    Variant,
    best,
    contenders,
    decided,
    random_control,
    survey,
)
from sparing.slim.state import State, Surveyed, write_state
from sparing.slim.steps import DENSE, OURS, Steps
from sparing.tasks import Examples
from sparing.tasks.shared.scores import metric
from sparing.transfer.adaptive import FrontierPoint

SAMPLE = 60
MOST_TRIALS = 6


def survey_plans(steps: Steps) -> list[Record]:
    """Every plan's cost and score on the first half of validation, with the random control."""
    model, examples, whole = steps.models.adaptive(), steps.parts[0], steps.dense_flops
    variants = steps.options.variants(steps.task)
    points: list[Point] = []
    controls: list[Point] = []
    seen: dict[Variant, Outcomes] = {}
    for variant, outcomes, its_points in survey(model, steps.task, examples, variants, whole):
        points += its_points
        seen[variant] = outcomes
        exiting = [point for point in best(its_points) if point.kind == "exits"]
        controls += [random_control(steps.task, outcomes, point, whole) for point in exiting]
    cut = [point for point in points if point.cost_share < 1]
    front, candidates = best(cut), contenders(cut)
    good = [p for p in candidates if steps.keeps_floor(decided(seen[p.variant], p).logits)]
    surveyed = tuple(
        Surveyed(
            *(point.plan, point.cost_share, point.score),
            fixed=point.kind == "depth",
            on_front=point in front,
            contender=point in candidates,
            good=point in good,
        )
        for point in points
        if point in candidates or point.kind == "depth"
    )
    write_state(steps.models.folder, State(survey=surveyed))
    records = []
    for point in [*points, *controls]:
        record = point.record(on_front=point in front)
        marks = {"contender": True, "good": point in good} if point in candidates else {}
        records.append(replace(record, labels={**record.labels, **marks}))
    score = metric(steps.task.metric).score(steps.dense_logits, examples.labels)
    return [*records, Record("dense_score", score, "score", "measured", {"split": "choosing"})]


def choose_plan(steps: Steps) -> list[Record]:
    """Time plans of the front on real texts, choose one by ``choose``, and record all of them."""
    state, fine_tunes = steps.state, steps.models.fixed_width_epochs > 0
    front = state.contenders if fine_tunes else state.front
    if not front:
        raise UsageError(
            "no surveyed plan is cheaper than the dense model: there is nothing to cut"
        )
    inputs = sample(steps, steps.parts[0], SAMPLE)
    dense = steps.engines.dense(steps.models.baseline())
    trials: dict[int, SpeedUp] = {}

    def speed_of(number: int) -> float:
        if number not in trials:
            trials[number] = _trial(steps, front[number].plan, dense, inputs)
        return trials[number].value

    number, safe, reached = choose(front, speed_of, steps.options.speed, fine_tunes=fine_tunes)
    for needed in {number, number if reached else safe}:
        speed_of(needed)
    chosen, fallback = front[number], None if reached or number == safe else front[safe]
    steps.keep(chosen=chosen, fallback=fallback, fine_tunes=fine_tunes)
    count = sum(point.good for point in front)
    records = [_record("trial_speed", front[n], trial) for n, trial in trials.items()]
    records.append(_record("chosen_plan", chosen, reached=reached, good_plans=count))
    if fallback is not None:
        records.append(_record("fallback_plan", fallback))
    return records


def choose(
    front: Sequence[Surveyed], speed_of: Callable[[int], float], speed: float, *, fine_tunes: bool
) -> tuple[int, int, bool]:
    """The positions in the front of the plan to build on and of the safe one, and success.

    The front is searched by bisection, as larger plans are better and slower. The largest plan that
    is fast enough is chosen if it keeps the floor, or if it will be fine-tuned. Else the largest
    plan that is both fast and good is chosen. If there is none, the safe one is: the fastest that
    keeps the floor, or else the best one.
    """
    speeds = _searched(len(front), speed_of, speed)
    fast = [number for number, value in speeds.items() if value >= speed]
    good = [number for number, point in enumerate(front) if point.good]
    safe = good[0] if good else len(front) - 1
    largest = max(fast, default=0)
    if fast and (front[largest].good or fine_tunes):
        return largest, safe, front[largest].good
    both = [number for number in fast if front[number].good]
    return max(both, default=safe), safe, bool(both)


def _searched(plans: int, speed_of: Callable[[int], float], speed: float) -> dict[int, float]:
    """The speeds of the plans timed in the search for the largest one that is fast enough."""
    speeds: dict[int, float] = {}
    low, high = 0, plans - 1
    while low <= high and len(speeds) < MOST_TRIALS:
        middle = (low + high) // 2
        speeds[middle] = speed_of(middle)
        if speeds[middle] >= speed:
            low = middle + 1
        else:
            high = middle - 1
    return speeds


def best_fixed(state: State, most: float) -> Surveyed:
    """The best surveyed plan without exits that costs nearly ``most`` and no more.

    If none is near, it is the best that costs no more, or else the cheapest. Raises ``UsageError``
    if nothing was surveyed.
    """
    if not state.fixed:
        raise UsageError("no plan without exits was surveyed: an earlier step has failed")
    affordable = [point for point in state.fixed if point.cost_share <= most]
    if not affordable:
        return min(state.fixed, key=lambda point: point.cost_share)
    near = [point for point in affordable if point.cost_share >= NEAR * most] or affordable
    return max(near, key=lambda point: (point.score or 0.0, -point.cost_share))


def _trial(steps: Steps, plan: Plan, dense: Runs, inputs: Sequence[Any]) -> SpeedUp:
    """How much faster a plan is than the fastest dense form, each in its fastest engine."""
    ours = steps.engines.ours(steps.models.adaptive(), plan, "trial")
    runs = {f"{DENSE} {name}": run for name, run in dense.items()}
    runs |= {f"{OURS} {name}": run for name, run in ours.items()}
    times = time_inputs(runs, inputs, rounds=3, threads=steps.engines.thread_count)
    candidate = fastest(times, [name for name in runs if name.startswith(OURS)])
    baseline = fastest(times, [name for name in runs if name.startswith(DENSE)])
    return speed_up(times[candidate], times[baseline])


def sample(steps: Steps, examples: Examples, count: int) -> list[Mapping[str, Tensor]]:
    """Some examples, one by one the same in every run."""
    inputs = [inputs for _, inputs in inputs_of(steps.task, examples, 1)]
    return random.Random(0).sample(inputs, min(count, len(inputs)))


def _record(name: str, point: FrontierPoint, trial: SpeedUp | None = None, **more: Label) -> Record:
    """A plan with its speed if it was timed, else its share of the dense FLOPs."""
    labels: dict[str, Label] = {
        "plan": json.dumps(point.plan.to_dict()),
        "cost_share": point.cost_share,
        "score": point.score,
        **more,
    }
    if trial is None:
        return Record(name, point.cost_share, "share", "modelled", labels)
    return Record(name, trial.value, "ratio", "measured", labels, trial.interval)
