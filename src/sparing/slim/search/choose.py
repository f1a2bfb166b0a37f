"""Choose the plan to cut out: all plans answer the same texts, and a few are timed."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence

from torch import Tensor

from sparing.core.errors import UsageError
from sparing.core.record import Label, Record
from sparing.export.forms import COMPILED
from sparing.layers.plan import Plan
from sparing.measure.calibration import most_changes
from sparing.measure.inputs import SpeedUp, fastest, speed_up, time_inputs
from sparing.slim.engines import Runs, cascade_precision, float32_runs, logits_of
from sparing.slim.evidence.representative import evenly
from sparing.slim.inputs import inputs_of
from sparing.slim.search.expected import Rate, cheapest, ways_of
from sparing.slim.search.frontier import Point, best, random_control, survey
from sparing.slim.state import Surveyed, Way
from sparing.slim.steps import DENSE, OURS, Steps
from sparing.tasks import Examples
from sparing.tasks.shared.scores import metric

SAMPLE, FEW, ROUNDS, BLOCK = 60, 24, 3, 6
MOST_TRIALS = 6
NEARLY = 0.95  # of the cost of the control


def survey_plans(steps: Steps) -> list[Record]:
    """Every plan's cost, divergence and score on the choosing texts, with random exits beside."""
    model, examples, whole = steps.models.adaptive(), steps.parts[0], steps.dense_flops
    variants, reference = steps.options.variants(steps.task), steps.dense_logits
    points: list[Point] = []
    controls: list[Point] = []
    ways: dict[Point, tuple[Way, ...]] = {}
    most = certifiable_shares(steps)
    for _, outcomes, its_points in survey(
        model, steps.task, examples, variants, reference, whole, steps.answer
    ):
        points += its_points
        for point in its_points:
            if steps.answer.exits and point.kind == "depth" and point.cost_share < 1:
                ways[point] = ways_of(outcomes, point.plan.layers, (whole, reference), most)
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
            ways=ways.get(point, ()),
        )
        for point in points
        if point in front or point.kind == "depth"
    )
    steps.keep(survey=surveyed)
    records = [point.record(on_front=point in front) for point in (*points, *controls)]
    score = metric(steps.task.metric).score(reference, examples.labels)
    return [*records, Record("dense_score", score, "score", "measured", {"split": "choosing"})]


def choose_plan(steps: Steps) -> list[Record]:
    """Choose the plan to cut out, without exits: those are chosen later, for every form.

    It is the one that is expected to be served fastest, with exits and the dense model at the end.
    Where none is expected to be faster than the dense model, plans are timed on real texts, and the
    nearest to dense that is fast enough is chosen.
    """
    plans = [point for point in steps.state.fixed if point.cost_share < 1]
    if not plans:
        raise UsageError(
            "no surveyed plan is cheaper than the dense model: there is nothing to cut"
        )
    inputs = sample(steps, steps.parts[0], SAMPLE)
    dense = float32_runs(steps.dense_forms, DENSE)
    trials: dict[Surveyed, SpeedUp] = {}

    def speed_of(point: Surveyed) -> float:
        if point not in trials:
            trials[point] = _trial(steps, point.plan, dense, inputs)
        return trials[point].value

    records, rates = _dense_rates(steps, plans)
    expected = cheapest(plans, certifiable_shares(steps), rates)
    if expected is None:
        front = nearest_plans(plans)
        point = front[choose(len(front), lambda n: speed_of(front[n]), steps.options.speed)]
    else:
        point = expected.point
        labels: dict[str, Label] = {"plan": _plan(point), "epsilon": expected.epsilon}
        records += [Record("expected_cost", expected.cost, "share", "modelled", labels)]
    reached = speed_of(point) >= steps.options.speed
    steps.keep(chosen=point)
    records += [_record("trial_speed", timed, trial) for timed, trial in trials.items()]
    return [*records, _record("chosen_plan", point, reached=reached)]


def certifiable_shares(steps: Steps) -> dict[float, float]:
    """For each epsilon the share of changed answers that is certified, where there is any.

    The epsilon that is served comes first, then larger ones. Nothing is assumed of the fine-tuning
    that follows: in six runs it left 0.5 to 1.4 of a plan's changed answers.
    """
    count, delta = len(steps.parts[1]), steps.options.delta
    listed = sorted(epsilon for epsilon in steps.epsilons if epsilon >= steps.epsilon)
    most = {epsilon: most_changes(count, epsilon, delta) / count for epsilon in listed}
    return {epsilon: share for epsilon, share in most.items() if share >= 0}


def _dense_rates(steps: Steps, plans: Sequence[Surveyed]) -> tuple[list[Record], list[Rate]]:
    """The rate of every dense form that is not compiled, with its record.

    Without exits they are not needed: all plans gain alike by a lower precision.
    """
    if not any(point.ways for point in plans):
        return [], [Rate(1.0, 1.0)]
    forms, few = steps.dense_forms, sample(steps, steps.parts[0], FEW)
    listed = [form for form in forms if form.settings != COMPILED]
    runs = {str(form): logits_of(forms[form]) for form in listed}
    times = time_inputs(runs, few, rounds=ROUNDS, threads=steps.engines.thread_count, block=BLOCK)
    best = times[fastest(times, [str(form) for form in listed if form.precision == "float32"])]
    slower = {name: speed_up(best, seen) for name, seen in times.items()}
    records, rates = [], []
    for form in listed:
        rate = slower[str(form)]
        last = forms.find(form.engine, cascade_precision(form.precision))
        rates.append(Rate(rate.value, slower[str(last)].value))
        labels: dict[str, Label] = {"form": str(form)}
        records.append(Record("dense_rate", rate.value, "ratio", "measured", labels, rate.interval))
    return records, rates


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
    """The plan without exits that comes nearest to the cost ``most`` from below, or the cheapest.

    Among plans of nearly the same cost it is the one of least divergence. Divergence says little of
    shallower ones: they may end at a layer that was never trained to answer.
    """
    plans = [point for point in fixed if point.cost_share < 1]
    if not plans:
        raise UsageError("no plan without exits was surveyed: an earlier step has failed")
    affordable = [point for point in plans if point.cost_share <= most]
    if not affordable:
        return min(plans, key=lambda point: point.cost_share)
    least = NEARLY * max(point.cost_share for point in affordable)
    return min((p for p in affordable if p.cost_share >= least), key=lambda p: p.divergence)


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
    """Some batches of examples, by default one by one: of all lengths, the same in every run."""
    by_length = [inputs for _, inputs in inputs_of(steps.task, examples, batch)]
    chosen = [by_length[number] for number in evenly(len(by_length), count)]
    return random.Random(0).sample(chosen, len(chosen))


def _record(name: str, point: Surveyed, trial: SpeedUp | None = None, **more: Label) -> Record:
    """A plan with its speed if it was timed, else its share of the dense FLOPs."""
    labels: dict[str, Label] = {
        "plan": _plan(point),
        "cost_share": point.cost_share,
        "score": point.score,
        "divergence": point.divergence,
        **more,
    }
    if trial is None:
        return Record(name, point.cost_share, "share", "modelled", labels)
    return Record(name, trial.value, "ratio", "measured", labels, trial.interval)


def _plan(point: Surveyed) -> str:
    return json.dumps(point.plan.to_dict())
