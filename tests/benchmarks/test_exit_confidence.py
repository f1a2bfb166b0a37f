"""Confidences compared at equal arithmetic."""

from __future__ import annotations

import pytest
import torch
from benchmarks.exit_confidence import Reference, at_cost, interval

from sparing.layers.plan import Plan
from sparing.slim.search.exits import Outcomes, decide


@pytest.fixture
def outcomes():
    """Ten examples and one exit; the learned confidence ranks them the other way round."""
    sure = torch.linspace(0.55, 0.95, 10)
    first = torch.stack([sure, 1 - sure], -1).log()
    last = first.flip(-1)
    return Outcomes(
        Plan((1, 1), (1, 1)),
        (1, 2),
        torch.stack([first, last]),
        torch.full((2, 10), 100.0, dtype=torch.float64),
        10,
        torch.zeros(10, dtype=torch.long),
        learned=torch.stack([1 - sure, torch.full((10,), torch.nan)]),
        learned_flops=5,
    )


def test_costs_are_met_from_below_with_the_highest_threshold(outcomes):
    """Leaving costs 110, staying 220, and being asked by what was learned 5 more."""
    for leaving in (2, 5, 9):
        budget = (110 * leaving + 220 * (10 - leaving)) / 10
        by_softmax = at_cost(outcomes, "softmax", budget + 1)
        assert by_softmax.layers.tolist() == [2] * (10 - leaving) + [1] * leaving
        learned = at_cost(outcomes, "learned", budget + 6)
        assert learned.layers.tolist() == [1] * leaving + [2] * (10 - leaving)
        assert float(learned.flops.mean()) == budget + 5


def test_kinds_are_compared_input_by_input(outcomes):
    reference = Reference(outcomes.logits[1].argmax(-1), outcomes.labels, 200.0)
    base, by_softmax = decide(outcomes), at_cost(outcomes, "softmax", 170.0)
    row = reference.rows("learned", 0.5, [by_softmax, base], base)
    left = float((by_softmax.layers == 1).double().mean())
    assert row.differs == row.differs_gain == pytest.approx(left / 2)
    assert row.accuracy == row.accuracy_gain == pytest.approx(left / 2)
    low, high = row.differs_interval
    assert low < row.differs < high


def test_intervals_cover_the_mean_and_shrink():
    values = torch.randn(400, generator=torch.Generator().manual_seed(0)).double()
    low, high = interval(values)
    assert low < float(values.mean()) < high
    assert high - low == pytest.approx(2 * 1.96 / 20, rel=0.15)
