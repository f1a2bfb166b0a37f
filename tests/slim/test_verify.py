"""The served form on test rows: which forms it is compared with, and what is recorded."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from sparing.measure.inputs import InputTimes
from sparing.slim.evidence import verify
from sparing.slim.evidence.candidates import Candidate, Timed
from sparing.slim.inputs import inputs_of
from sparing.slim.search.divergence import divergence
from sparing.slim.state import State, read_state, served
from sparing.slim.steps import TOKENIZER
from sparing.slim.study import steps_of, task_of
from tests.slim.conftest import TINY, of_name

DENSE = Candidate("dense", "eager", "float32")
SLOW = Candidate("dense", "openvino", "float32")
BOLD = Candidate("dense", "openvino", "int8", "NNCF")
SAFE = Candidate("dense", "openvino", "bfloat16")
OURS = Candidate("slim", "openvino", "int8", "NNCF", 0.9)


def timed(one, changed=0.0, good=True):
    return Timed(one, changed, 0.0, good, 1.0)


def times(ms):
    return InputTimes(np.full((1, 5), float(ms)), [])


@pytest.mark.parametrize(
    ("changed", "good", "against"),
    [
        (0.09, True, SAFE),  # dense INT8 changes more than the served form may
        (0.05, True, BOLD),  # it keeps as much, and is faster
        (0.05, False, SAFE),  # it loses too much score
    ],
)
def test_speed_is_over_the_fastest_dense_form_that_keeps_as_much(
    monkeypatch, changed, good, against
):
    ms = {DENSE: 4, SLOW: 5, SAFE: 3, BOLD: 2, OURS: 1}
    state = State(candidates=(*map(timed, (DENSE, SLOW, SAFE, OURS)), timed(BOLD, changed, good)))
    steps = SimpleNamespace(state=state, epsilon=0.05, served=lambda: OURS)
    taken = {str(one): times(of) for one, of in ms.items()}
    records = verify._beside_dense(steps, list(ms), taken, 1)
    (speed,) = [record for record in records if record.name == "served_speed_up"]
    assert speed.labels["against"] == str(against)
    assert speed.value == pytest.approx(ms[against] / ms[OURS])
    classes = {r.labels["precision"]: r for r in records if r.name == "class_speed_up"}
    assert set(classes) == {"int8"}
    assert classes["int8"].labels["against"] == str(BOLD)
    assert classes["int8"].value == pytest.approx(2)


def test_all_dense_forms_and_the_frontier_are_tested_once(texts_run):
    state = read_state(texts_run.folder)
    tested = {Candidate.from_labels(r.labels) for r in of_name(texts_run, "agreement")}
    dense = {t.candidate for t in state.candidates if t.candidate.model == "dense"}
    assert {one for one in dense if one.key == one} <= tested
    assert {p.candidate for p in state.points if p.candidate is not None} <= tested
    assert served(state, 0.05) in tested
    assert verify.best_dense(SimpleNamespace(state=state, epsilon=0.05)) in tested
    assert len(of_name(texts_run, "agreement")) == len(tested)


def test_the_tokenizer_counts_on_both_sides():
    taken = {str(OURS): times(1), str(SAFE): times(3), TOKENIZER: times(0.5)}
    labels = {"form": str(OURS), "against": str(SAFE), "batch": 1}
    records = verify._with_tokenizer(taken, labels)
    *alone, speed = records
    assert [(r.name, r.value) for r in alone] == [("tokenizer_ms", 0.5)] * 3
    assert (speed.name, speed.value) == ("text_speed_up", pytest.approx(3.5 / 1.5))
    del taken[TOKENIZER]
    assert verify._with_tokenizer(taken, labels) == []


def test_texts_are_tokenized_again_as_they_were(texts_run, texts_options):
    steps = steps_of(texts_options, task_of(texts_options)[0], texts_run.folder)
    batches = inputs_of(steps.task, steps.timed, 4)
    (again,) = steps._tokenizer(batches, steps.timed).values()
    for _, inputs in batches:
        made = again(inputs)
        assert torch.equal(made["input_ids"], inputs["input_ids"])
    for batch in (1, 4):
        assert of_name(texts_run, "text_speed_up", batch=batch)


def test_images_have_no_tokenizer(images_run):
    assert not of_name(images_run, "tokenizer_ms")


@pytest.mark.parametrize(("changed", "expected"), [(0.01, 2), (0.06, 1)])
def test_the_dense_form_to_beat_may_be_a_cascade(changed, expected):
    """INT8 that passes unsure inputs on needs no training: it is a dense form as well."""
    cascade = replace(BOLD, threshold=0.9, cascade=True)
    speeds = {DENSE: 1.0, SAFE: 1.5, cascade: 2.0, OURS: 4.0}
    candidates = tuple(
        replace(timed(one, changed if one == cascade else 0.0), speed=speed)
        for one, speed in speeds.items()
    )
    steps = SimpleNamespace(state=State(candidates=candidates), epsilon=0.05)
    assert verify.best_dense(steps) == list(speeds)[expected]


def test_agreement_and_divergence_are_those_of_the_stored_answers(texts_run):
    answers = load_file(texts_run.folder / "answers.safetensors")
    dense = answers[str(DENSE)]
    for record in of_name(texts_run, "agreement"):
        mine = answers[str(Candidate.from_labels(record.labels))]
        same = (mine.argmax(-1) == dense.argmax(-1)).double().mean()
        assert record.value == pytest.approx(float(same))
        assert record.labels["divergence"] == pytest.approx(divergence(mine, dense))
        assert record.count == len(dense)


def test_the_labels_of_texts_without_labels_are_the_dense_answers(texts_run):
    answers = load_file(texts_run.folder / "answers.safetensors")
    assert (answers["labels"] == answers[str(DENSE)].argmax(-1)).all()


@pytest.mark.parametrize("batch", TINY["batches"])
def test_every_form_is_timed_on_the_same_inputs(texts_run, batch):
    rows = of_name(texts_run, "latency_ms", batch=batch, of="mean")
    assert len({record.count for record in rows}) == 1
    speeds = of_name(texts_run, "speed_up", batch=batch)
    exact = [r for r in rows if (r.labels["arm"], r.labels["precision"]) == ("dense", "float32")]
    fastest = min(exact, key=lambda record: record.value)
    assert len(speeds) == len(rows) - 1
    for speed in speeds:
        form = Candidate.from_labels(speed.labels)
        assert form != Candidate.from_labels(fastest.labels)
        timed_form = next(r for r in rows if Candidate.from_labels(r.labels) == form)
        assert speed.value == pytest.approx(fastest.value / timed_form.value, rel=1e-6)
        assert speed.interval[0] <= speed.value <= speed.interval[1]


def test_answers_are_put_back_into_the_order_of_the_examples(texts_run):
    """Agreement on the timed texts is that of the same texts in the whole test part."""
    scores = {
        batch: of_name(texts_run, "score", batch=batch, arm="dense", precision="float32")
        for batch in TINY["batches"]
    }
    for listed in scores.values():
        assert all(record.value == 1.0 for record in listed)
        assert all(record.count == TINY["timed_examples"] for record in listed)


def test_the_control_has_the_served_forms_engine_and_precision():
    control = verify._static_form(replace(OURS, cascade=True))
    assert control == Candidate("static", "openvino", "int8", "NNCF")
