"""Choose the plan to cut out: all plans answer the same texts, and a few are timed."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence

from torch import Tensor

from sparing.core.errors import UsageError
from sparing.core.record import Label, Record
from sparing.layers.plan import Plan
from sparing.measure.calibration import most_changes
from sparing.measure.inputs import SpeedUp, fastest, speed_up, time_inputs
from sparing.slim.engines import Runs, float32_runs
from sparing.slim.inputs import inputs_of
from sparing.slim.search.exits import Outcomes
from sparing.slim.search.frontier import Point, Variant, best, random_control, survey
from sparing.slim.state import Surveyed
from sparing.slim.steps import DENSE, OURS, Steps
from sparing.tasks import Examples
from sparing.tasks.shared.scores import metric

SAMPLE, ROUNDS, BLOCK = 60, 3, 6
MOST_TRIALS = 6


def survey_plans(steps: Steps) -> list[Record]:
    """Every plan's cost, divergence and score on the choosing texts, with random exits beside."""
    model, examples, whole = steps.models.adaptive(), steps.parts[0], steps.dense_flops
    variants, reference = steps.options.variants(steps.task), steps.dense_logits
    points: list[Point] = []
    controls: list[Point] = []
    seen: dict[Variant, Outcomes] = {}
    for variant, outcomes, its_points in survey(
        model, steps.task, examples, variants, reference, whole, steps.answer
    ):
        points += its_points
        seen[variant] = outcomes
        exiting = [point for point in best(its_points) if point.kind == "exits"]
        controls += [
            random_control(steps.task, outcomes, point, whole, reference) for point in exiting
        ]
    front = best([point for point in points if point.cost_share < 1])
    surveyed = tuple(
        Surveyed(
            *(point.plan, point.cost_share, point.score),
            divergence=point.divergence,
            changed=point.changed,
            fixed=point.kind == "depth",
            on_front=point in front,
        )
        for point in points
        if point in front or point.kind == "depth"
    )
    steps.keep(survey=surveyed)
    records = [point.record(on_front=point in front) for point in (*points, *controls)]
    score = metric(steps.task.metric).score(reference, examples.labels)
    return [*records, Record("dense_score", score, "score", "measured", {"split": "choosing"})]


def choose_plan(steps: Steps) -> list[Record]:
    """Choose the plan to cut out, without exits: those come later and make it faster still.

    It is the cheapest that can be certified. Where none can be, plans are timed on real texts, and
    the nearest to dense that is fast enough is chosen.
    """
    front = nearest_plans(steps.state.fixed)
    if not front:
        raise UsageError(
            "no surveyed plan is cheaper than the dense model: there is nothing to cut"
        )
    inputs = sample(steps, steps.parts[0], SAMPLE)
    dense = float32_runs(steps.dense_forms, DENSE)
    trials: dict[int, SpeedUp] = {}

    def speed_of(number: int) -> float:
        if number not in trials:
            trials[number] = _trial(steps, front[number].plan, dense, inputs)
        return trials[number].value

    number = certifiable(front, steps)
    if number is None:
        number = choose(len(front), speed_of, steps.options.speed)
    reached = speed_of(number) >= steps.options.speed
    steps.keep(chosen=front[number])
    records = [_record("trial_speed", front[n], trial) for n, trial in trials.items()]
    return [*records, _record("chosen_plan", front[number], reached=reached)]


def certifiable(front: Sequence[Surveyed], steps: Steps) -> int | None:
    """The number of the cheapest plan that can be certified, or None.

    It can be certified if as many changes among the calibration inputs still are. Of the shares of
    changed answers that are certified, the one that is served is tried first, then larger ones.
    Nothing is assumed of the fine-tuning that follows: in six runs it left 0.5 to 1.4 of a plan's
    changed answers.
    """
    count, delta = len(steps.parts[1]), steps.options.delta
    for epsilon in sorted(share for share in steps.epsilons if share >= steps.epsilon):
        most = most_changes(count, epsilon, delta) / count
        for number, point in enumerate(front):
            if point.changed <= most:
                return number
    return None


def nearest_plans(fixed: Sequence[Surveyed]) -> list[Surveyed]:
    """The plans that no cheaper one equals in divergence from the dense model, cheapest first."""
    front: list[Surveyed] = []
    for point in sorted(fixed, key=lambda point: (point.cost_share, point.divergence)):
        if point.cost_share < 1 and (not front or point.divergence < front[-1].divergence):
            front.append(point)
    return front


def choose(plans: int, speed_of: Callable[[int], float], speed: float) -> int:
    """The number of the largest plan that is fast enough, or of the cheapest one.

    Plans are in order of cost. Bisection, as larger plans are nearer to dense and slower.
    """
    chosen, low, high = 0, 0, plans - 1
    for _ in range(MOST_TRIALS):
        if low > high:
            break
        middle = (low + high) // 2
        if speed_of(middle) >= speed:
            chosen, low = middle, middle + 1
        else:
            high = middle - 1
    return chosen


def best_fixed(fixed: Sequence[Surveyed], most: float) -> Surveyed:
    """The plan without exits nearest to dense that costs no more than ``most``, or the cheapest."""
    front = nearest_plans(fixed)
    if not front:
        raise UsageError("no plan without exits was surveyed: an earlier step has failed")
    affordable = [point for point in front if point.cost_share <= most]
    return affordable[-1] if affordable else front[0]


def _trial(
    steps: Steps, plan: Plan, dense: Runs, inputs: Sequence[Mapping[str, Tensor]]
) -> SpeedUp:
    """How much faster a plan is than the fastest dense form, both in float32."""
    model = steps.models.adaptive()
    runs = dense | float32_runs(steps.engines.ours(model, plan, "trial"), OURS)
    threads = steps.engines.thread_count
    times = time_inputs(runs, inputs, rounds=ROUNDS, threads=threads, block=BLOCK)
    candidate = fastest(times, [name for name in runs if name.startswith(OURS)])
    baseline = fastest(times, list(dense))
    return speed_up(times[candidate], times[baseline])


def sample(
    steps: Steps, examples: Examples, count: int, batch: int = 1
) -> list[Mapping[str, Tensor]]:
    """Some batches of examples, by default one by one, the same in every run."""
    inputs = [inputs for _, inputs in inputs_of(steps.task, examples, batch)]
    return random.Random(0).sample(inputs, min(count, len(inputs)))


def _record(name: str, point: Surveyed, trial: SpeedUp | None = None, **more: Label) -> Record:
    """A plan with its speed if it was timed, else its share of the dense FLOPs."""
    labels: dict[str, Label] = {
        "plan": json.dumps(point.plan.to_dict()),
        "cost_share": point.cost_share,
        "score": point.score,
        "divergence": point.divergence,
        **more,
    }
    if trial is None:
        return Record(name, point.cost_share, "share", "modelled", labels)
    return Record(name, trial.value, "ratio", "measured", labels, trial.interval)
