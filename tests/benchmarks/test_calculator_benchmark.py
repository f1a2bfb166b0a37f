"""What the calculator's benchmark counts."""

from __future__ import annotations

import importlib
import json

import pytest

from sparing.calculator import Answer, Calculator
from sparing.calculator.network import SHIPPED
from sparing.tasks.shared.expressions import parse


@pytest.fixture
def benchmark():
    return importlib.import_module("calculator")


class Writes:
    """A network that answers with given texts."""

    def __init__(self, *texts: str) -> None:
        self.texts = texts

    def answer(self, texts):
        totals = ((0, 0, 0),)
        return [
            Answer(text, 0.9 if text == "3" else 0.2, totals=totals)
            for text, _ in zip(self.texts, texts, strict=True)
        ]


def test_right_answers_are_counted_with_their_interval(benchmark):
    sums = [parse("1 + 2"), parse("1 + 3")]
    score = benchmark.score_sums(Writes("3", "5"), sums, [expression.text for expression in sums])
    assert (score["right"], score["count"], score["first_wrong"]) == (1, 2, "1 + 3")
    assert score["wilson"][0] < 0.5 < score["wilson"][1]
    assert score["wrong_per_step"] == pytest.approx(1 / 6)
    assert benchmark.sureness(score) == {
        "auroc": 1.0,
        "wrong_above_half": 0.0,
        "wrong": 1,
        "count": 2,
        "mean": pytest.approx(0.55),
        "right_below_half": 0.0,
    }


def test_there_is_no_area_where_all_answers_are_right(benchmark):
    score = benchmark.score_sums(Writes("3"), [parse("1 + 2")], ["1 + 2"])
    sure = benchmark.sureness(score)
    assert (sure["auroc"], sure["wrong_above_half"], sure["wrong"]) == (None, None, 0)


def test_both_spacings_are_read_and_counted(benchmark, monkeypatch):
    monkeypatch.setattr(benchmark, "FRESH", 3)
    monkeypatch.setattr(benchmark, "STRETCHED", 1)
    few = {name: list(sums)[:3] for name, sums in benchmark.suites().items()}
    monkeypatch.setattr(benchmark, "suites", lambda: few)
    result = benchmark.read_both_ways(Calculator.load(SHIPPED), 0)
    assert set(result["suites"]["4x3"]) == {"single spaces", "0 to 8 spaces"}
    assert result["free"]["count"] == sum(map(len, few.values()))
    assert result["free"]["right"] == result["free"]["count"]
    assert result["far"]["count"] == result["far"]["right"] == 1
    assert result["confidence"]["0 to 8 spaces"]["wrong"] == 0
    json.dumps(result, allow_nan=False)
    table = benchmark.table_of({"seeds": [result, result]})
    assert "| 4x3, 0 to 8 spaces | 3 | 100.00 100.00 |" in table


def test_two_weights_on_values_solve_the_published_task(benchmark):
    result = benchmark.gated_sum()
    assert result["weights"] == pytest.approx([-1, 2])
    assert (result["in"], result["out"], result["long"]) == (1, 1, 1)
