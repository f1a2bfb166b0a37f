"""Which plan of the front is chosen: the dearest that is fast enough, where that is good enough."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

from sparing.core.errors import UsageError
from sparing.layers.plan import Plan
from sparing.measure.inputs import SpeedUp
from sparing.slim.engines import Engines
from sparing.slim.search import choose as choosing
from sparing.slim.state import State, Surveyed, read_state, write_state
from sparing.slim.study import Options, steps_of
from sparing.tasks import Examples, load_task

# A layer more costs a fifth more, is better by a twentieth, and slower: 5, 2.5, 1.7, 1.25 times.
SHARES = {layers: 0.2 * layers for layers in (1, 2, 3, 4)}
LEVELS = {layers: 0.7 + 0.05 * layers for layers in SHARES}


def surveyed(layers, good, beaten):
    """The plan of a depth; on the front but where a much cheaper one beats it."""
    plan, marks = Plan((2,) * layers, (8,) * layers), {"good": layers in good}
    marks |= {"on_front": layers not in beaten, "contender": True}
    return Surveyed(plan, SHARES[layers], LEVELS[layers], **marks)


@pytest.fixture
def chosen(monkeypatch, tmp_path):
    """Records by name and depth, each plan as fast as its FLOPs say."""

    def choose(good, speed=1.5, fixed_width_epochs=0, beaten=(), depths=tuple(SHARES)):
        options = Options(speed=speed, fixed_width_epochs=fixed_width_epochs)
        steps = steps_of(options, load_task("digits", patch_size=4), tmp_path)
        write_state(tmp_path, State(tuple(surveyed(n, good, beaten) for n in depths)))
        monkeypatch.setattr(type(steps.models), "baseline", lambda _: None)
        monkeypatch.setattr(type(steps.engines), "dense", lambda *_: {})
        monkeypatch.setattr(choosing, "sample", lambda *_: [])
        monkeypatch.setattr(
            choosing, "_trial", lambda _, plan, *__: SpeedUp(1 / SHARES[plan.layers], None, 60)
        )
        records = {
            record.name: (Plan.from_dict(json.loads(record.labels["plan"])).layers, record)
            for record in choosing.choose_plan(steps)
            if record.name in ("chosen_plan", "fallback_plan")
        }
        state = read_state(tmp_path)
        points = {"chosen_plan": state.chosen, "fallback_plan": state.fallback}
        chosen_depths = {
            name: point.plan.layers for name, point in points.items() if point is not None
        }
        assert chosen_depths == {name: layers for name, (layers, _) in records.items()}
        assert state.fine_tunes == (fixed_width_epochs > 0)
        return records

    return choose


@pytest.mark.parametrize("fixed_width_epochs", [0, 3])
def test_the_dearest_that_is_fast_enough_is_chosen_where_it_is_good_enough(
    chosen, fixed_width_epochs
):
    records = chosen(good=(2, 3, 4), fixed_width_epochs=fixed_width_epochs)
    assert records["chosen_plan"][0] == 3
    assert records["chosen_plan"][1].labels["reached"] is True
    assert "fallback_plan" not in records


def test_what_is_fast_but_not_good_enough_is_chosen_only_to_be_trained_on(chosen):
    trained_on = chosen(good=(4,), fixed_width_epochs=3)
    assert trained_on["chosen_plan"][0] == 3
    assert trained_on["chosen_plan"][1].labels["reached"] is False
    assert trained_on["fallback_plan"][0] == 4
    as_it_is = chosen(good=(4,))
    assert as_it_is["chosen_plan"][0] == 4
    assert as_it_is["chosen_plan"][1].labels["reached"] is False
    assert "fallback_plan" not in as_it_is


def test_what_only_a_much_cheaper_plan_beats_is_chosen_where_it_is_trained_on(chosen):
    trained_on = chosen(good=(2, 3, 4), fixed_width_epochs=3, beaten=(3,))
    assert trained_on["chosen_plan"][0] == 3
    assert trained_on["chosen_plan"][1].labels["reached"] is True
    as_it_is = chosen(good=(2, 3, 4), beaten=(3,))
    assert as_it_is["chosen_plan"][0] == 2


def test_a_cheaper_one_that_is_fast_and_good_enough_goes_before_a_slow_one(chosen):
    records = chosen(good=(2, 4))
    assert records["chosen_plan"][0] == 2
    assert records["chosen_plan"][1].labels["reached"] is True


def test_where_none_is_fast_enough_the_fastest_good_one_is_taken_else_the_best(chosen):
    assert chosen(good=(3, 4), speed=9.0)["chosen_plan"][0] == 3
    assert chosen(good=(), speed=9.0)["chosen_plan"][0] == 4


def test_nothing_to_cut_is_said(chosen):
    with pytest.raises(UsageError, match="nothing to cut"):
        chosen(good=(), depths=())


def test_the_example_for_export_is_the_two_longest_inputs(tmp_path):
    ids = [torch.full((length,), length) for length in (3, 9, 5, 7)]
    held = Examples("input_ids", ids, torch.zeros(4, dtype=torch.long))
    task = load_task("listops", examples=20)
    example = Engines(replace(task, validation=held), tmp_path, 1, False).example()
    assert sorted(example["input_ids"].amax(-1).tolist()) == [7, 9]
    assert "labels" not in example
