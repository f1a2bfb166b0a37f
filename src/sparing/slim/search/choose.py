"""Which plan of the frontier is taken: by time on real texts, not by arithmetic."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

from sparing.core.errors import UsageError
from sparing.core.record import Label, Record
from sparing.experiment.run import Run
from sparing.layers.plan import Plan
from sparing.measure.inputs import SpeedUp, fastest, speed_up, time_inputs
from sparing.slim.cells import DENSE, OURS, Steps, contenders_of, front_of, good_points
from sparing.slim.engines import Runs
from sparing.slim.models import inputs_of
from sparing.tasks import Examples
from sparing.transfer.adaptive import FrontierPoint

SAMPLE = 60
MOST_TRIALS = 6


def choose_plan(steps: Steps, run: Run) -> list[Record]:
    """The best plan of the front that is fast enough, by time on real texts, not by arithmetic.

    The front is searched by halves: the dearer a plan, the better it was and the slower it is.
    Where none is fast enough, the fastest that is good enough is taken, and where none is that, the
    best. Good enough is what loses no more than the floor allows, or more by no more than one
    standard error of the paired difference. A plan that is fast but not good enough yet is chosen
    where it will be trained on; what is good enough already is then recorded beside it. Where plans
    are trained on, the front has those too that only much cheaper plans beat.
    """
    front = contenders_of(run) if steps.models.polish_epochs else front_of(run)
    good = good_points(run, front)
    if not front:
        raise UsageError(
            "no surveyed plan is cheaper than the dense model: there is nothing to cut"
        )
    inputs = sample(steps, steps.parts[0], SAMPLE)
    dense = steps.engines.dense(steps.models.rival())

    def timed(number: int) -> SpeedUp:
        return _trial(steps, front[number].plan, dense, inputs)

    trials = _searched(len(front), timed, steps.speed)
    fast = [place for place, found in trials.items() if found.value >= steps.speed]
    place, safe = max(fast, default=0), front.index(good[0]) if good else len(front) - 1
    reached = bool(fast) and front[place] in good
    if not reached and not (fast and steps.models.polish_epochs):
        both = [number for number in fast if front[number] in good]
        place, reached = max(both, default=safe), bool(both)
    for number in {place, place if reached else safe} - trials.keys():
        trials[number] = timed(number)
    records = [_record("trial_speed", front[n], found) for n, found in trials.items()]
    records.append(_record("chosen_plan", front[place], reached=reached, good_plans=len(good)))
    if not reached and place != safe:
        records.append(_record("fallback_plan", front[safe]))
    return records


def _searched(plans: int, timed: Callable[[int], SpeedUp], speed: float) -> dict[int, SpeedUp]:
    """The plans that were timed on the way to the dearest one that is fast enough."""
    trials: dict[int, SpeedUp] = {}
    low, high = 0, plans - 1
    while low <= high and len(trials) < MOST_TRIALS:
        middle = (low + high) // 2
        trials[middle] = timed(middle)
        if trials[middle].value >= speed:
            low = middle + 1
        else:
            high = middle - 1
    return trials


def _trial(steps: Steps, plan: Plan, dense: Runs, inputs: Sequence[Any]) -> SpeedUp:
    """How much faster a plan is than the fastest dense form, each in its fastest engine."""
    ours = steps.engines.ours(steps.models.adaptive(), plan, "trial")
    calls = {f"{DENSE} {name}": call for name, call in dense.items()}
    calls |= {f"{OURS} {name}": call for name, call in ours.items()}
    times = time_inputs(calls, inputs, rounds=3, threads=steps.engines.thread_count)
    mine = fastest(times, [name for name in calls if name.startswith(OURS)])
    theirs = fastest(times, [name for name in calls if name.startswith(DENSE)])
    return speed_up(times[mine], times[theirs])


def sample(steps: Steps, examples: Examples, count: int) -> list[Mapping[str, Tensor]]:
    """Some examples, one by one as they are served, always the same."""
    inputs = [inputs for _, inputs in inputs_of(steps.task, examples, 1)]
    return random.Random(0).sample(inputs, min(count, len(inputs)))


def _record(name: str, point: FrontierPoint, trial: SpeedUp | None = None, **more: Label) -> Record:
    """A plan with its speed, where it was timed, else its share of the arithmetic."""
    labels: dict[str, Label] = {
        "plan": json.dumps(point.plan.to_dict()),
        "cost_share": point.cost_share,
        "score": point.score,
        **more,
    }
    if trial is None:
        return Record(name, point.cost_share, "share", "measured", labels)
    return Record(name, trial.value, "ratio", "measured", labels, trial.interval)
