"""Which form slim serves: every branch of the rule, and the state that it is read from."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest

from sparing.core.errors import DataError, UsageError
from sparing.layers.plan import Plan
from sparing.slim.evidence.candidates import Candidate, Point, Timed
from sparing.slim.options import Options
from sparing.slim.state import FILE, State, Surveyed, read_state, served, write_state
from sparing.slim.study import steps_of
from sparing.tasks import load_task
from sparing.transfer.adaptive import FrontierPoint

PLAN = Plan((2,) * 4, (8,) * 4, exits=(1, 2, 3), threshold=0.7)
EAGER = Candidate("dense", "eager", "float32")
ONNX = Candidate("dense", "onnxruntime", "float32")
BFLOAT16 = Candidate("dense", "openvino", "bfloat16")
OURS = Candidate("slim", "openvino", "float32", threshold=0.9)
CASCADE = Candidate("slim", "onnxruntime", "int8", "dynamic", threshold=0.8, cascade=True)


def timed(candidate, speed, changed=0.0):
    return Timed(candidate, changed, 0.01, good=True, speed=speed)


def state_of(point=None, speed=1.0, *, dense=((EAGER, 0.6), (ONNX, 1.0)), epsilon=0.05):
    """A state with dense forms of these speeds, and one certified point."""
    forms = [timed(candidate, of) for candidate, of in dense]
    return State(
        candidates=(*forms, timed(BFLOAT16, 1.5, 0.01), timed(OURS, 2.0, 0.02)),
        points=(Point(0.01, None, 1.0, 0, 200), Point(epsilon, point, speed, 2, 200)),
    )


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (State(), None),  # nothing is certified yet
        (state_of(OURS, 2.0), OURS),
        (state_of(CASCADE, 1.2), CASCADE),
        (state_of(BFLOAT16, 1.5), BFLOAT16),  # another form of the dense model may win
        (state_of(), ONNX),  # nothing is certified: the reference in its fastest engine
        (state_of(OURS, 0.9), ONNX),  # certified, but slower than the reference
        (state_of(OURS, 1.0), ONNX),  # as fast: no reason to change any answer
        (state_of(dense=((EAGER, 1.0), (ONNX, 0.4))), EAGER),
        (state_of(OURS, 2.0, epsilon=0.03), None),  # there is no point for this share
    ],
)
def test_the_fastest_certified_form_is_served_else_the_reference(state, expected):
    assert served(state, 0.05) == expected


def test_each_share_has_its_own_point():
    state = state_of(OURS, 2.0)
    assert served(state, 0.05) == OURS
    assert served(state, 0.01) == ONNX


def test_exits_of_the_dense_model_do_not_make_it_the_reference():
    """A cascade from INT8 to the dense model, or a threshold, is not the reference's key."""
    odd = replace(EAGER, threshold=0.9)
    state = replace(state_of(), candidates=(timed(odd, 9.0), *state_of().candidates))
    assert served(state, 0.05) == ONNX


FULL = State(
    survey=(
        Surveyed(PLAN, 0.4, 0.9, divergence=0.1, on_front=True),
        Surveyed(PLAN.without_choice, 0.6, None, fixed=True),
    ),
    chosen=Surveyed(PLAN, 0.4, 0.9),
    folder="fixed-width",
    thresholds=(FrontierPoint(PLAN, 0.3, 0.8),),
    static="static",
    candidates=(timed(EAGER, 1.0), timed(CASCADE, 1.7, 0.03)),
    points=(Point(0.05, CASCADE, 1.7, 3, 200), Point(0.01, None, 1.0, 0, 200)),
)


@pytest.mark.parametrize("state", [State(), FULL])
def test_a_state_is_read_back_as_it_was_written(tmp_path, state):
    write_state(tmp_path, state)
    assert read_state(tmp_path) == state
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


def test_a_run_that_has_not_begun_has_an_empty_state(tmp_path):
    assert read_state(tmp_path) == State()


def _first(content, name, **changes):
    first, *rest = content[name]
    return {**content, name: [{**first, **changes}, *rest]}


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: {key: value for key, value in content.items() if key != "points"},
        lambda content: {**content, "more": 1},
        lambda content: {**content, "folder": 1},
        lambda content: {**content, "survey": 3},
        lambda content: {**content, "chosen": 3},
        lambda content: {**content, "chosen": {**content["chosen"], "plan": {}}},
        lambda content: {**content, "chosen": {**content["chosen"], "plan": 3}},
        lambda content: {**content, "chosen": {**content["chosen"], "cost_share": -1.0}},
        lambda content: _first(content, "candidates", good=1),
        lambda content: _first(content, "candidates", candidate=None),
        lambda content: _first(content, "points", count=200.0),
        lambda content: _first(content, "points", candidate={"model": "slim"}),
        lambda content: [content],
    ],
)
def test_a_damaged_state_is_refused_in_one_line(tmp_path, damage):
    content = json.loads(json.dumps(asdict(FULL)))
    (tmp_path / FILE).write_text(json.dumps(damage(content)))
    with pytest.raises(DataError, match=FILE) as caught:
        read_state(tmp_path)
    assert "\n" not in str(caught.value)


def test_half_a_state_is_refused(tmp_path):
    write_state(tmp_path, FULL)
    text = (tmp_path / FILE).read_text()
    (tmp_path / FILE).write_text(text[: len(text) // 2])
    with pytest.raises(DataError, match=r"state\.json cannot be read: it is not JSON"):
        read_state(tmp_path)


def test_a_step_after_a_failed_one_says_so(tmp_path):
    steps = steps_of(Options(), load_task("digits", patch_size=4), tmp_path)
    for state in (State(), replace(FULL, points=())):
        write_state(tmp_path, state)
        with pytest.raises(UsageError, match="an earlier step has failed"):
            steps.served()
    write_state(tmp_path, State())
    with pytest.raises(UsageError, match="an earlier step has failed"):
        steps.plan()
    write_state(tmp_path, FULL)
    assert steps.served() == CASCADE


def test_the_served_share_is_the_one_that_was_named_or_five_per_cent(tmp_path):
    task = load_task("digits", patch_size=4)
    assert steps_of(Options(), task, tmp_path).epsilons == (0.01, 0.02, 0.03, 0.05, 0.08)
    assert steps_of(Options(), task, tmp_path).epsilon == 0.05
    alone = steps_of(Options(agree=0.97), task, tmp_path)
    assert (alone.epsilon, alone.epsilons) == (0.03, (0.03,))
