"""The calculator's controls: labels of the transformer, the adder alone, and what is measured."""

from __future__ import annotations

import importlib
import random

import pytest
import torch

from sparing.calculator import Calculator
from sparing.calculator.network import SHIPPED
from sparing.calculator.scan import Scan
from sparing.calculator.texts import Sum, draw_sums
from sparing.tasks.shared.expressions import draw_many, parse


@pytest.fixture
def controls():
    return importlib.import_module("calculator_controls")


def test_a_transformer_is_given_the_calculators_labels(controls):
    one = Sum(parse("12 - -7 + -305"), "12--7+-305")
    assert controls.transformer_text(one, totals=False) == ("12--7+-305=", "682-")
    # 12, 19 and -286 in ten's complement, least significant digit first
    assert controls.transformer_text(one, totals=True) == ("12--7+-305=", "21000 91000 41799.682-")


def test_the_shipped_adder_is_right_on_rows_as_they_should_be(controls):
    sums = draw_many(60, (1, 9), 9, seed="control")
    score = controls.ask_adder(Calculator.load(SHIPPED).adder, sums)
    assert (score["right"], score["count"]) == (60, 60)
    assert score["wilson"][0] > 0.9


def test_a_continuous_state_is_a_distribution_and_ends_with_its_block(controls):
    scan = Scan(4, 3, symbols=5, hidden=8)
    logits = torch.randn(2, 5)
    with controls.continuous():
        assert torch.equal(scan._next(logits, 1.0, soft=False), logits.softmax(-1))
    with torch.no_grad():
        assert set(scan._next(logits, 0.0, soft=False).unique().tolist()) == {0.0, 1.0}


@pytest.mark.parametrize("control", ["transformer, answers alone", "last total alone"])
def test_a_control_is_trained_asked_and_tabled(control, controls, monkeypatch):
    monkeypatch.setattr(controls, "STEPS", {True: 2, False: 2})
    monkeypatch.setattr(controls, "LAST_TOTAL_STEPS", 2)
    monkeypatch.setattr(controls, "TESTED", {"calculator": 4, "transformer": 4})
    row = controls.measured(control, 0, lambda share: None)
    assert row["control"] in controls.CONTROLS
    assert all(suite["count"] == 4 for suite in row["suites"].values())
    assert {"in", "out", "long", "16x12"} <= set(row["suites"])
    assert sum(reading["energy_j"] for reading in row["energy"]) > 0
    assert f"| {control} | 0 |" in controls.markdown([row])
    assert [line[0] for line in controls.table_of([row])][1:] == [control, "two weights, on values"]


def test_sums_are_drawn_as_the_calculator_learns_them():
    drawn = draw_sums(random.Random(0), 50)
    assert max(len(example.expression.operands) for example in drawn) == 4
