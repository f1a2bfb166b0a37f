"""What the calculator's benchmark counts."""

from __future__ import annotations

import importlib

import pytest

from sparing.calculator import Answer
from sparing.tasks._expressions import parse


@pytest.fixture
def benchmark():
    return importlib.import_module("calculator")


class Writes:
    """A network that answers what it is told to."""

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
    found = benchmark.asked(Writes("3", "5"), sums, [each.text for each in sums])
    assert (found["right"], found["count"], found["first_wrong"]) == (1, 2, "1 + 3")
    assert found["wilson"][0] < 0.5 < found["wilson"][1]
    assert found["wrong_per_step"] == pytest.approx(1 / 6)
    assert benchmark.sureness(found) == {"auroc": 1.0, "wrong_above_half": 0.0, "wrong": 1}


def test_there_is_no_area_where_all_answers_are_right(benchmark):
    found = benchmark.asked(Writes("3"), [parse("1 + 2")], ["1 + 2"])
    assert benchmark.sureness(found) == {"auroc": None, "wrong_above_half": None, "wrong": 0}


def test_two_weights_on_values_solve_the_published_task(benchmark):
    found = benchmark.gated_sum()
    assert found["weights"] == pytest.approx([-1, 2])
    assert (found["in"], found["out"], found["long"]) == (1, 1, 1)
