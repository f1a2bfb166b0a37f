"""What a plan would cost as it is served, against a loop over inputs and thresholds."""

from __future__ import annotations

import json

import pytest
import torch

from sparing.layers.plan import Plan
from sparing.slim.evidence.candidates import THRESHOLDS
from sparing.slim.search.exits import Outcomes
from sparing.slim.search.expected import Rate, cheapest, expected_cost, ways_of
from sparing.slim.state import State, Surveyed, Way, read_state, write_state

COUNT, CLASSES, HEAD = 400, 3, 7
MOST = {0.05: 0.04, 0.08: 0.06, 0.2: 0.15}


@pytest.fixture
def seen():
    """A plan of four layers with three exits; each is surer and more often right than before."""
    generator = torch.Generator().manual_seed(0)
    reference = 3 * torch.randn(COUNT, CLASSES, generator=generator)
    noise = torch.randn(3, COUNT, CLASSES, generator=generator)
    logits = reference + torch.tensor([4.0, 1.5, 0.8])[:, None, None] * noise
    flops = 50 + 100 * torch.rand(4, COUNT, generator=generator, dtype=torch.float64)
    plan = Plan((2,) * 4, (8,) * 4)
    labels = reference.argmax(-1)
    return Outcomes(plan, (1, 3, 4), logits, flops, HEAD, labels), reference


def slow_way(seen, layers, reference, whole, most, cascade):
    """The mean FLOPs and the share of inputs that go on, input by input."""
    numbers = [number for number in seen.exits if number <= layers]
    for threshold in THRESHOLDS:
        flops, deferred, changed = 0.0, 0, 0
        for row in range(COUNT):
            right = int(reference[row].argmax())
            spent, answer = 0.0, None
            for index, number in enumerate(numbers):
                first = numbers[index - 1] if index else 0
                spent += float(seen.layer_flops[first:number, row].sum()) + HEAD
                chances = seen.logits[index, row].softmax(-1)
                last = number == layers and not cascade
                if float(chances.max()) > threshold or last:
                    answer = int(chances.argmax())
                    break
            if answer is None:
                deferred += 1
                answer = right
            flops += spent
            changed += answer != right
        if changed / COUNT <= most:
            return flops / COUNT / whole, deferred / COUNT
    return None


@pytest.mark.parametrize("layers", [3, 4])
def test_ways_are_those_of_a_loop_over_inputs(seen, layers):
    outcomes, reference = seen
    whole = 900.0
    result = ways_of(outcomes, layers, (whole, reference), MOST)
    expected = []
    for cascade in (False, True):
        for epsilon, most in MOST.items():
            slow = slow_way(outcomes, layers, reference, whole, most, cascade)
            if slow is not None:
                expected.append((epsilon, *slow))
    assert len({way.epsilon for way in result}) == len(MOST)
    assert [(w.epsilon, w.plan_share, w.deferred) for w in result] == [
        pytest.approx(one, rel=1e-9) for one in expected
    ]


def test_a_plan_with_one_exit_is_served_with_the_dense_model_alone(seen):
    outcomes, reference = seen
    ways = ways_of(outcomes, 1, (900.0, reference), MOST)
    assert len(ways) == len(MOST)
    assert all(way.deferred > 0 for way in ways)


def surveyed(cost, changed, *ways):
    """A surveyed plan with these ways."""
    plan = Plan((2,), (8,))
    return Surveyed(plan, cost, 0.5, changed=changed, fixed=True, ways=ways)


ALIKE, INT8, BFLOAT16 = Rate(1.0, 1.0), Rate(0.4, 1.0), Rate(0.5, 0.5)


@pytest.mark.parametrize(
    ("rates", "changed", "cost"),
    [
        ([ALIKE], 0.5, 0.5),  # 0.3 and 0.2 go on; exits alone cost 0.55
        ([ALIKE, INT8], 0.5, 0.22),  # exits alone: INT8 does not speed up those that go on
        ([ALIKE, BFLOAT16], 0.5, 0.25),  # those that go on are faster too
        ([INT8], 0.01, 0.16),  # the whole plan without exits
    ],
)
def test_a_cost_is_that_of_the_cheapest_way(rates, changed, cost):
    point = surveyed(0.4, changed, Way(0.05, 0.55, 0.0), Way(0.05, 0.3, 0.2), Way(0.08, 0.1, 0.0))
    assert expected_cost(point, 0.05, 0.04, rates) == pytest.approx(cost)
    assert expected_cost(point, 0.01, 0.005, rates) is None


def test_the_first_share_at_which_a_plan_is_faster_decides():
    slow = surveyed(0.9, 0.04, Way(0.05, 0.9, 0.3), Way(0.08, 0.5, 0.0))
    narrow = surveyed(0.3, 0.5, Way(0.05, 0.3, 0.75), Way(0.08, 0.3, 0.0))
    result = cheapest([slow, narrow], {0.05: 0.03, 0.08: 0.06}, [ALIKE])
    assert result is not None
    assert (result.point, result.epsilon, result.cost) == (narrow, 0.08, pytest.approx(0.3))
    result = cheapest([slow, narrow], {0.05: 0.045, 0.08: 0.06}, [ALIKE])
    assert result is not None
    assert (result.point, result.epsilon) == (slow, 0.05)
    assert cheapest([slow, narrow], {0.05: 0.03}, [ALIKE]) is None
    assert cheapest([slow, narrow], {}, [ALIKE]) is None


def test_a_state_without_ways_is_read(tmp_path):
    state = State((surveyed(0.9, 0.04, Way(0.05, 0.9, 0.3)),))
    write_state(tmp_path, state)
    assert read_state(tmp_path) == state
    path = tmp_path / "state.json"
    content = json.loads(path.read_text())
    del content["survey"][0]["ways"]
    path.write_text(json.dumps(content))
    assert read_state(tmp_path) == State((surveyed(0.9, 0.04),))
