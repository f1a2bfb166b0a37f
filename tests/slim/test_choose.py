"""Which plan is cut out: the cheapest that can be certified, or the nearest that is fast enough."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

from sparing.core.errors import UsageError
from sparing.layers.plan import Plan
from sparing.measure.inputs import SpeedUp
from sparing.slim.engines import Engines, cascade_precision
from sparing.slim.search import choose as choosing
from sparing.slim.search.choose import best_fixed, choose, nearest_plans
from sparing.slim.search.expected import Rate, expected_cost
from sparing.slim.state import State, Surveyed, read_state, write_state
from sparing.slim.study import Options, steps_of
from sparing.tasks import Examples, load_task
from tests.slim.conftest import of_name

# A layer more costs a fifth more, is nearer to dense, and slower: 5, 2.5, 1.7, 1.25 times.
SHARES = {layers: 0.2 * layers for layers in (1, 2, 3, 4)}


def surveyed(layers, divergence=None, changed=1.0):
    """A plan of so many layers, by default one that nothing can be certified of."""
    plan = Plan((2,) * layers, (8,) * layers)
    near = 1.0 - SHARES[layers] if divergence is None else divergence
    return Surveyed(plan, SHARES[layers], 0.5, divergence=near, changed=changed, fixed=True)


@pytest.fixture
def chosen(monkeypatch, tmp_path):
    """The depth of the chosen plan and its records, each plan as fast as its FLOPs say."""

    def run(plans, speed, **options):
        task = load_task("digits", patch_size=4)
        steps = steps_of(Options(speed=speed, **options), task, tmp_path)
        write_state(tmp_path, State(tuple(plans)))
        monkeypatch.setattr(type(steps.models), "baseline", lambda _: None)
        monkeypatch.setattr(type(steps.engines), "dense", lambda *_: {})
        monkeypatch.setattr(choosing, "sample", lambda *_: [])
        monkeypatch.setattr(
            choosing, "_trial", lambda _, plan, *__: SpeedUp(1 / SHARES[plan.layers], None, 60)
        )
        records = choosing.choose_plan(steps)
        plan = read_state(tmp_path).chosen.plan
        assert json.loads(records[-1].labels["plan"]) == plan.to_dict()
        assert records[-1].name == "chosen_plan"
        return plan.layers, records

    return run


@pytest.mark.parametrize(
    ("speed", "depth", "reached"), [(1.5, 3, True), (1.0, 4, True), (3, 1, True), (9, 1, False)]
)
def test_the_largest_plan_that_is_fast_enough_is_cut_out(chosen, speed, depth, reached):
    layers, records = chosen(map(surveyed, SHARES), speed)
    assert layers == depth
    assert records[-1].labels["reached"] is reached
    assert all(record.name == "trial_speed" for record in records[:-1])


def test_a_plan_that_a_cheaper_one_equals_is_never_timed(chosen):
    plans = [surveyed(1), surveyed(2, 0.1), surveyed(3, 0.1), surveyed(4, 0.2)]
    layers, records = chosen(plans, 1.0)
    assert layers == 2
    assert len(records) <= 3


@pytest.mark.parametrize(
    ("agree", "changed", "depth"),
    [
        # 135 calibration inputs certify 90 % with 7 changes, 85 % with 13, 95 % with 2, 92 % with 5
        (0.9, {1: 0.30, 2: 0.09, 3: 0.05, 4: 0.01}, 3),
        (0.85, {1: 0.30, 2: 0.09, 3: 0.05, 4: 0.01}, 2),
        (0.9, {1: 0.30, 2: 0.09, 3: 0.08, 4: 0.07}, 1),
        # without a point of one's own: 95 % first, then 92 %
        (0.0, {1: 0.30, 2: 0.09, 3: 0.03, 4: 0.01}, 4),
        (0.0, {1: 0.30, 2: 0.09, 3: 0.036, 4: 0.03}, 3),
        # 97 % without a change is not tried: it is not what is served
        (0.0, {1: 0.30, 2: 0.09, 3: 0.01, 4: 0.0}, 3),
    ],
)
def test_the_cheapest_plan_that_can_be_certified_is_cut_out(chosen, agree, changed, depth):
    plans = [surveyed(layers, changed=changed[layers]) for layers in SHARES]
    layers, records = chosen(plans, 4.0, agree=agree)
    assert layers == depth
    timed = [record for record in records if record.name == "trial_speed"]
    assert records[-1].labels["reached"] is (depth == 1)
    if depth > 1:
        assert [json.loads(record.labels["plan"])["heads"] for record in timed] == [[2] * depth]


def test_plans_with_exits_are_not_cut_out(chosen):
    with pytest.raises(UsageError, match="nothing to cut"):
        chosen([replace(surveyed(2), fixed=False)], 1.0)
    with pytest.raises(UsageError, match="nothing to cut"):
        chosen([], 1.0)


@pytest.mark.parametrize("plans", [1, 2, 5, 40])
def test_bisection_finds_what_a_search_from_the_largest_does(plans):
    speeds = [3.0 - 2 * number / plans for number in range(plans)]
    for speed in (0.5, 1.2, 2.0, 2.6, 5.0):
        tried = []
        number = choose(plans, lambda n, tried=tried: tried.append(n) or speeds[n], speed)
        assert number == max((n for n in range(plans) if speeds[n] >= speed), default=0)
        assert len(tried) <= choosing.MOST_TRIALS


def test_nearest_plans_are_those_that_no_cheaper_one_equals():
    plans = [surveyed(4, 0.3), surveyed(1, 0.9), surveyed(3, 0.2), surveyed(2, 0.9)]
    expected = [
        one
        for one in sorted(plans, key=lambda point: point.cost_share)
        if all(
            other.divergence > one.divergence
            for other in plans
            if other.cost_share < one.cost_share
        )
    ]
    assert nearest_plans(plans) == expected
    assert [point.plan.layers for point in expected] == [1, 3]
    assert nearest_plans([replace(plans[0], cost_share=1.0)]) == []


@pytest.mark.parametrize(("most", "depth"), [(0.7, 3), (0.6, 3), (0.59, 2), (0.1, 1)])
def test_the_control_is_the_most_expensive_plan_that_costs_no_more(most, depth):
    plans = [replace(surveyed(layers), cost_share=share) for layers, share in SHARES.items()]
    assert best_fixed(plans, most + 1e-9).plan.layers == depth
    with pytest.raises(UsageError, match="an earlier step has failed"):
        best_fixed([], most)


def test_divergence_decides_among_controls_of_nearly_the_same_cost_alone():
    cheap, near, worse = (
        surveyed(1, 0.1),
        surveyed(2, 0.5),
        replace(surveyed(3, 0.6), cost_share=0.41),
    )
    assert best_fixed([cheap, near, worse], 0.5) is near
    assert best_fixed([cheap, replace(near, cost_share=1.0), worse], 2.0) is worse


def test_the_example_for_export_is_the_two_longest_inputs(tmp_path):
    ids = [torch.full((length,), length) for length in (3, 9, 5, 7)]
    held = Examples("input_ids", ids, torch.zeros(4, dtype=torch.long))
    task = load_task("listops", examples=20)
    example = Engines(replace(task, validation=held), tmp_path, 1).example()
    assert sorted(example["input_ids"].amax(-1).tolist()) == [7, 9]
    assert "labels" not in example


def test_a_run_measures_rates_and_takes_the_plan_with_the_least_cost(texts_run):
    rates = {record.labels["form"]: record for record in of_name(texts_run, "dense_rate")}
    assert {(rate.obtained, rate.unit) for rate in rates.values()} == {("measured", "ratio")}
    exact = [rate.value for form, rate in rates.items() if form.endswith("float32")]
    assert min(exact) == 1.0
    (expected,) = of_name(texts_run, "expected_cost")
    (chosen,) = of_name(texts_run, "chosen_plan")
    assert expected.labels["plan"] == chosen.labels["plan"]
    plans = [plan for plan in read_state(texts_run.folder).fixed if plan.cost_share < 1]
    assert any(plan.ways for plan in plans)
    epsilon = expected.labels["epsilon"]
    costs = [expected_cost(plan, epsilon, 0.0, [Rate(1.0, 1.0)]) for plan in plans]
    assert expected.value <= min(cost for cost in costs if cost is not None)
    assert expected.value < 1


def test_inputs_of_an_int8_plan_go_on_to_the_dense_model_in_float32():
    precisions = ("float32", "bfloat16", "int8")
    assert list(map(cascade_precision, precisions)) == ["float32", "bfloat16", "float32"]
