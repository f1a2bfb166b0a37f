"""Which plan slim should cut out: plans by name, their cost by FLOPs, and the table."""

from __future__ import annotations

import importlib

import pytest
import torch

from sparing.layers.plan import Plan
from sparing.slim.search.exits import Outcomes
from sparing.slim.search.expected import with_dense


@pytest.fixture
def slim_choice():
    return importlib.import_module("slim_choice")


def test_a_plan_is_a_width_and_layers(slim_choice):
    assert slim_choice.parsed("0.5x4") == (0.5, 4)
    for text in ("half", "0.5x", "1x2x3"):
        with pytest.raises(SystemExit, match="a plan is a width and layers"):
            slim_choice.parsed(text)


def test_the_cost_of_a_candidate_is_counted_input_by_input(slim_choice):
    # of four inputs two exit after one layer, one after two, and one goes on to the dense model
    sure, unsure = [4.0, 0.0], [0.1, 0.0]
    logits = torch.tensor([[sure, sure, unsure, unsure], [sure, sure, sure, unsure]])
    flops = torch.full((2, 4), 30.0, dtype=torch.float64)
    labels = torch.zeros(4, dtype=torch.long)
    seen = Outcomes(Plan((2, 2), (8, 8)), (1, 2), logits, flops, 5, labels)
    both = with_dense(seen, 2, torch.tensor([[5.0, 0.0]] * 4))
    candidate = slim_choice.Candidate("slim", "", "", "", 0.9, cascade=True)
    spent = (35 + 35 + 70 + 70) / 4
    assert slim_choice.cost_of(candidate, seen, both, 200.0, 0.4) == pytest.approx(
        0.4 * spent / 200 + 1 / 4
    )
    alone = slim_choice.Candidate("slim", "", "", "", 0.9)
    assert slim_choice.cost_of(alone, seen, both, 200.0, 0.4) == pytest.approx(0.4 * spent / 200)


def test_the_table_has_two_lines_for_each_plan(slim_choice):
    row = {"run": "a", "plan": "0.5x4", "expected": [None, 2.0, 3.0, 4.0, 5.0]}
    lines = slim_choice.table([{**row, "certified": [1.5, 2.5, 3.5, 4.5, 5.5]}]).splitlines()
    assert "none" in lines[-2]
    assert "expected" in lines[-2]
    assert "5.50" in lines[-1]
