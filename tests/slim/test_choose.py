"""Which plan of the front is chosen: the dearest that is fast enough, where that is good enough."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from sparing.core.errors import UsageError
from sparing.core.record import Record
from sparing.experiment.run import Run
from sparing.layers.plan import Plan
from sparing.measure.inputs import SpeedUp
from sparing.slim.cells import Steps
from sparing.slim.engines import Engines
from sparing.slim.search import choose as choosing
from sparing.tasks import Examples, load_task

# A layer more costs a fifth more, is better by a twentieth, and slower: 5, 2.5, 1.7, 1.25 times.
SHARES = {layers: 0.2 * layers for layers in (1, 2, 3, 4)}
LEVELS = {layers: 0.7 + 0.05 * layers for layers in SHARES}


class Recorded(Run):
    """A run of which only the surveyed plans are asked for."""

    def __init__(self, good, beaten=()):
        self.good, self.beaten = good, beaten

    def records(self):
        """One plan for each depth, all on the front but those that much cheaper ones beat."""
        return [self.surveyed(layers, share) for layers, share in SHARES.items()]

    def surveyed(self, layers, share):
        plan = json.dumps(Plan((2,) * layers, (8,) * layers).to_dict())
        labels = {"plan": plan, "cost_share": share, "good": layers in self.good}
        labels |= {"on_front": layers not in self.beaten, "contender": True}
        return Record("frontier_score", LEVELS[layers], "score", "measured", labels)


def chosen(monkeypatch, good, speed=1.5, polish_epochs=0, beaten=()):
    """Records by name and depth, each plan as fast as its arithmetic says."""
    steps = object.__new__(Steps)
    models = SimpleNamespace(polish_epochs=polish_epochs, rival=lambda: None)
    given = {"models": models, "engines": SimpleNamespace(dense=lambda model: {}), "speed": speed}
    for name, value in {**given, "parts": (None, None)}.items():
        object.__setattr__(steps, name, value)
    monkeypatch.setattr(choosing, "sample", lambda *_: [])
    monkeypatch.setattr(
        choosing, "_trial", lambda _, plan, *__: SpeedUp(1 / SHARES[plan.layers], None, 60)
    )
    found = choosing.choose_plan(steps, Recorded(good, beaten))
    return {
        record.name: (Plan.from_dict(json.loads(record.labels["plan"])).layers, record)
        for record in found
        if record.name in ("chosen_plan", "fallback_plan")
    }


@pytest.mark.parametrize("polish_epochs", [0, 3])
def test_the_dearest_that_is_fast_enough_is_chosen_where_it_is_good_enough(
    monkeypatch, polish_epochs
):
    found = chosen(monkeypatch, good=(2, 3, 4), polish_epochs=polish_epochs)
    assert found["chosen_plan"][0] == 3
    assert found["chosen_plan"][1].labels["reached"] is True
    assert "fallback_plan" not in found


def test_what_is_fast_but_not_good_enough_is_chosen_only_to_be_trained_on(monkeypatch):
    trained_on = chosen(monkeypatch, good=(4,), polish_epochs=3)
    assert trained_on["chosen_plan"][0] == 3
    assert trained_on["chosen_plan"][1].labels["reached"] is False
    assert trained_on["fallback_plan"][0] == 4
    as_it_is = chosen(monkeypatch, good=(4,))
    assert as_it_is["chosen_plan"][0] == 4
    assert as_it_is["chosen_plan"][1].labels["reached"] is False
    assert "fallback_plan" not in as_it_is


def test_what_only_a_much_cheaper_plan_beats_is_chosen_where_it_is_trained_on(monkeypatch):
    trained_on = chosen(monkeypatch, good=(2, 3, 4), polish_epochs=3, beaten=(3,))
    assert trained_on["chosen_plan"][0] == 3
    assert trained_on["chosen_plan"][1].labels["reached"] is True
    as_it_is = chosen(monkeypatch, good=(2, 3, 4), beaten=(3,))
    assert as_it_is["chosen_plan"][0] == 2


def test_a_cheaper_one_that_is_fast_and_good_enough_goes_before_a_slow_one(monkeypatch):
    found = chosen(monkeypatch, good=(2, 4))
    assert found["chosen_plan"][0] == 2
    assert found["chosen_plan"][1].labels["reached"] is True


def test_where_none_is_fast_enough_the_fastest_good_one_is_taken_else_the_best(monkeypatch):
    assert chosen(monkeypatch, good=(3, 4), speed=9.0)["chosen_plan"][0] == 3
    assert chosen(monkeypatch, good=(), speed=9.0)["chosen_plan"][0] == 4


def test_nothing_to_cut_is_said(monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "SHARES", {})
    with pytest.raises(UsageError, match="nothing to cut"):
        chosen(monkeypatch, good=())


def test_the_example_for_export_is_the_two_longest_inputs(tmp_path):
    ids = [torch.full((length,), length) for length in (3, 9, 5, 7)]
    held = Examples("input_ids", ids, torch.zeros(4, dtype=torch.long))
    task = load_task("listops", examples=20)
    example = Engines(replace(task, validation=held), tmp_path, 1, False).example()
    assert sorted(example["input_ids"].amax(-1).tolist()) == [7, 9]
    assert "labels" not in example
