"""Which forms compete: those that a few texts do not show to be slower than float32."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from sparing.measure.inputs import InputTimes
from sparing.slim.evidence import screen as screening
from sparing.slim.evidence import verify
from sparing.slim.evidence.candidates import Candidate, Screened
from sparing.slim.evidence.screen import competing, fastest_of, screen
from sparing.slim.state import read_state
from tests.slim.conftest import of_name

EAGER = Candidate("dense", "eager", "float32")
ONNX = Candidate("dense", "onnxruntime", "float32")
HALF = Candidate("dense", "eager", "bfloat16")
INT8 = Candidate("dense", "onnxruntime", "int8")
OURS = Candidate("slim", "onnxruntime", "float32")
OURS_INT8 = Candidate("slim", "onnxruntime", "int8")


def times(ms):
    return {str(key): InputTimes(np.full((1, 4), float(one)), []) for key, one in ms.items()}


def test_forms_much_slower_than_float32_of_the_same_model_do_not_compete():
    ms = {EAGER: 4.9, ONNX: 4.0, HALF: 4.81, INT8: 4.79, OURS: 1.0, OURS_INT8: 1.21}
    assert competing(list(ms), times(ms)) == [ONNX, INT8, OURS]


def test_the_fastest_float32_form_of_each_model_always_competes():
    ms = {ONNX: 4.0, INT8: 0.5, OURS: 9.0}
    assert competing(list(ms), times(ms)) == [ONNX, INT8, OURS]


@pytest.fixture
def timed(monkeypatch):
    """``screen`` with given times per batch size; returns the forms and the records."""

    def screened(by_batch):
        keys = list(next(iter(by_batch.values())))
        batches = iter(by_batch.values())
        monkeypatch.setattr(screening, "sample", lambda *_: [{}] * 4)
        monkeypatch.setattr(screening, "time_inputs", lambda *_, **__: times(next(batches)))
        steps = SimpleNamespace(
            forms=SimpleNamespace(keys=keys, cuts={}, runs=lambda listed: dict.fromkeys(listed)),
            parts=((), ()),
            plan=lambda: None,
            engines=SimpleNamespace(thread_count=1),
            options=SimpleNamespace(batches=tuple(by_batch)),
        )
        return screen(steps)

    return screened


def test_a_form_competes_that_is_fast_at_the_first_batch_size(timed):
    forms, records = timed({1: {ONNX: 4.0, INT8: 8.0, HALF: 8.0}, 8: {ONNX: 4, INT8: 2, HALF: 8}})
    assert forms == (
        Screened(ONNX, 1.0, competes=True, near=True),
        Screened(INT8, 0.5, competes=False, near=True),
        Screened(HALF, 0.5, competes=False, near=False),
    )
    seen = {
        (r.labels["precision"], r.labels["batch"]): (r.value, r.labels["competes"]) for r in records
    }
    assert seen == {
        ("float32", 1): (1.0, True),
        ("float32", 8): (1.0, True),
        ("int8", 1): (0.5, False),
        ("int8", 8): (2.0, False),
        ("bfloat16", 1): (0.5, False),
        ("bfloat16", 8): (0.5, False),
    }


def test_slims_fastest_form_that_competes_is_taken_and_dense_in_float32():
    forms = (
        Screened(INT8, 5.0, competes=True, near=True),
        Screened(EAGER, 0.6, competes=True, near=False),
        Screened(ONNX, 1.0, competes=True, near=True),
        Screened(OURS, 2.0, competes=True, near=True),
        Screened(OURS_INT8, 3.0, competes=False, near=True),
    )
    assert fastest_of(forms, "slim").candidate == OURS
    assert fastest_of(forms, "dense").candidate == ONNX


def test_forms_that_are_fast_somewhere_are_tested_and_the_fastest_of_each_other_precision():
    slow = Candidate("dense", "openvino", "bfloat16")
    forms = (
        Screened(EAGER, 0.6, competes=False, near=False),
        Screened(HALF, 0.7, competes=False, near=False),
        Screened(ONNX, 1.0, competes=True, near=True),
        Screened(INT8, 0.5, competes=False, near=True),
        Screened(slow, 0.5, competes=False, near=False),
        Screened(Candidate("slim", "eager", "float32"), 0.9, competes=False, near=False),
        Screened(OURS, 2.0, competes=True, near=True),
    )
    assert verify._forms_to_test(forms) == [EAGER, HALF, ONNX, INT8, OURS]


def test_the_forms_of_a_run_are_all_screened_and_those_that_compete_answer(texts_run):
    state = read_state(texts_run.folder)
    screened = of_name(texts_run, "screened_speed")
    batches = {record.labels["batch"] for record in screened}
    more = [form.candidate for form in state.forms if form not in state.whole]
    assert len(screened) == len(state.whole) * len(batches) + len(more)
    assert [(one.exits, one.layers) for one in more] == [
        (True, None),
        *((False, number) for number in range(1, state.chosen.plan.layers + 1)),
    ]
    assert {(one.model, one.precision) for one in more} == {("slim", "int8")}
    answered = {Candidate.from_labels(r.labels) for r in of_name(texts_run, "form_segments")}
    assert answered == set(state.competing)
    used = {timed.candidate.key for timed in state.candidates}
    assert used <= answered
    assert used >= {form.candidate for form in state.whole if form.competes}
