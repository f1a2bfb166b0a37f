"""Forms' answers after every exit: whose are shared, and that each is what the form gives."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from sparing.slim.engines import BothForms
from sparing.slim.evidence.answered import COMPARED, form_answers
from sparing.slim.evidence.candidates import Candidate
from sparing.slim.inputs import alone
from sparing.slim.state import served
from sparing.slim.study import steps_of, task_of
from tests.slim.conftest import of_name, only

DENSE, OURS = Candidate("dense", "eager", "float32"), Candidate("slim", "eager", "float32")
FILES = {key: replace(key, engine="onnxruntime") for key in (DENSE, OURS)}
KEYS = [DENSE, OURS, *FILES.values()]


@pytest.fixture
def steps(texts_run, texts_options, tmp_path, monkeypatch):
    """Steps in PyTorch and ONNX Runtime, as the run had."""
    monkeypatch.setattr("sparing.export.forms.missing_packages", only("onnxruntime"))
    shutil.copytree(texts_run.folder / "models", tmp_path / "models")
    for name in ("form-answers.safetensors", "dense-answers.safetensors", "state.json"):
        shutil.copyfile(texts_run.folder / name, tmp_path / name)
    return steps_of(texts_options, task_of(texts_options)[0], tmp_path)


@pytest.fixture
def answered_counts(steps, monkeypatch):
    """How many examples each form has answered."""
    counts = dict.fromkeys(KEYS, 0)
    opened = BothForms.chain

    def chain(both, key, **options):
        made = opened(both, key, **options)
        every_exit = made.every_exit

        def counted(inputs):
            counts[key] += 1
            return every_exit(inputs)

        made.every_exit = counted
        return made

    monkeypatch.setattr(BothForms, "chain", chain)
    return counts


def test_engines_share_answers_in_float32_but_certify_their_own(steps, answered_counts):
    choose, calibrate = map(len, steps.parts)
    answers = form_answers(steps, KEYS, steps.parts, {1})
    assert answered_counts == {
        FILES[DENSE]: choose + calibrate,
        DENSE: COMPARED,
        FILES[OURS]: choose + calibrate,
        OURS: COMPARED + calibrate,
    }
    for key, file in FILES.items():
        assert torch.equal(answers[key][0], answers[file][0])
        torch.testing.assert_close(answers[key][1], answers[file][1], atol=1e-5, rtol=0)


def test_an_engine_that_answers_otherwise_answers_alone(steps, answered_counts, monkeypatch):
    counted = BothForms.chain

    def shifted(both, key, **options):
        made = counted(both, key, **options)
        every_exit = made.every_exit
        made.every_exit = lambda inputs: every_exit(inputs) + 1e-3 * (key == OURS)
        return made

    monkeypatch.setattr(BothForms, "chain", shifted)
    answers = form_answers(steps, KEYS, [steps.parts[0]])
    assert answered_counts[OURS] == COMPARED + len(steps.parts[0])
    exits = answers[OURS][0].shape[1] - 1  # behind them is the dense model
    expected = answers[FILES[OURS]][0][:, :exits] + 1e-3
    torch.testing.assert_close(answers[OURS][0][:, :exits], expected, atol=1e-5, rtol=0)


def test_tested_forms_answer_as_they_do_when_they_run(texts_run, steps):
    """Thresholds and cascades are read off the answers after every exit."""
    stored = load_file(texts_run.folder / "answers.safetensors")
    rows = range(0, len(steps.task.test), 9)
    some = steps.task.test.subset(rows)
    tested = [Candidate.from_labels(r.labels) for r in of_name(texts_run, "agreement")]
    assert {one.model for one in tested} == {"dense", "slim"}
    assert served(steps.state, steps.epsilon) in tested
    for one in tested:
        made = torch.cat([*alone(steps.task, some, steps.forms.run(one))])
        torch.testing.assert_close(stored[str(one)][rows], made, atol=1e-4, rtol=0)
