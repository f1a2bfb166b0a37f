"""The certified frontier of a run: it rests on calibration texts that nothing else has seen."""

from __future__ import annotations

import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from scipy.stats import binom

from sparing.core.errors import DataError, UsageError
from sparing.measure.inputs import time_inputs
from sparing.slim.evidence import certify as certifying
from sparing.slim.evidence.candidates import (
    Candidate,
    Screened,
    Timed,
    changed_by,
    stages,
    taken,
)
from sparing.slim.evidence.certify import (
    FILE,
    PARTS,
    answer_forms,
    answers_of,
    certify,
    stored_name,
)
from sparing.slim.evidence.representative import representative
from sparing.slim.inputs import inputs_of
from sparing.slim.state import read_state, write_state
from sparing.slim.study import steps_of
from sparing.slim.texts import FILE as DENSE_FILE
from sparing.slim.texts import texts_task
from tests.slim.conftest import of_name, only

READ = {"options": {}, "seed": 0, "hold_out": "random", "changed": 0.05, "delta": 0.05}
DENSE = Candidate("dense", "eager", "float32")
OURS = Candidate("slim", "eager", "float32")


@pytest.fixture(scope="module")
def task(toy, texts_file):
    return texts_task(str(texts_file), str(toy), **READ)


@pytest.fixture
def folder(texts_run, tmp_path):
    """The run's folder without its exported files."""
    shutil.copytree(texts_run.folder / "models", tmp_path / "models")
    for name in (FILE, DENSE_FILE, "state.json"):
        shutil.copyfile(texts_run.folder / name, tmp_path / name)
    return tmp_path


@pytest.fixture
def steps(task, folder, texts_options, monkeypatch):
    """Steps in PyTorch and ONNX Runtime, as the run had."""
    monkeypatch.setattr("sparing.export.forms.missing_packages", only("onnxruntime"))
    return steps_of(texts_options, task, folder)


def pretend(steps, changes, speeds):
    """Forms in the stored answers with so many changed texts to choose and to calibrate on."""
    keys, stored = [], {}
    references = {"choose": steps.dense_logits, "calibrate": steps.calibration_logits}
    for number, (counts, speed) in enumerate(zip(changes, speeds, strict=True)):
        key = DENSE if number == 0 else replace(OURS, settings=f"form {number}")
        keys.append(Timed(key, 0.0, 0.0, good=True, speed=speed))
        for (part, reference), count in zip(references.items(), counts, strict=True):
            logits = reference.clone()
            logits[:count] = -logits[:count]
            name = "|".join((part, key.model, key.engine, key.precision, key.settings))
            stored[name] = logits[:, None].contiguous()
    save_file(stored, steps.models.folder / FILE)
    forms = tuple(
        Screened(timed.candidate, timed.speed, competes=True, near=True) for timed in keys
    )
    state = replace(steps.state, forms=forms, candidates=tuple(keys))
    write_state(steps.models.folder, state)

    class Both:
        """Forms that are only stored answers."""

        def __init__(self):
            self.keys, self.cuts = [timed.candidate for timed in keys], {}

        def require(self, known):
            assert set(known) == set(self.keys)

    steps.__dict__["forms"] = Both()
    return [timed.candidate for timed in keys]


def test_the_changed_answers_of_the_calibration_part_decide(steps):
    count = len(steps.parts[1])
    dense, good, bad = pretend(steps, [(0, 0), (0, 1), (1, count // 4)], [1.0, 2.0, 3.0])
    records = certify(steps)
    state = read_state(steps.models.folder)
    for point in state.points:
        bound = binom.cdf(1, count, point.epsilon)
        assert point.count == count
        assert point.candidate in (None, good), (
            "the other form looks good to the choosing part alone"
        )
        if point.candidate == good:
            assert (point.speed, point.changed) == (2.0, 1)
            assert bound <= 0.05
    assert state.points[-1].candidate == good
    assert steps.served() == good
    (seen,) = of_name(_Result(records), "disagreement")
    assert (seen.value, seen.count) == (1 / count, count)
    assert seen.labels["reference"] is False
    assert dense != bad


class _Result:
    def __init__(self, records):
        self.records = records


def test_where_nothing_is_certified_the_reference_is_served(steps):
    count = len(steps.parts[1])
    dense, _ = pretend(steps, [(0, 0), (0, count // 2)], [1.0, 5.0])
    records = certify(steps)
    assert [point.candidate for point in steps.state.points] == [None] * 5
    assert steps.served() == dense
    (seen,) = of_name(_Result(records), "disagreement")
    assert (seen.value, seen.labels["reference"]) == (0.0, True)
    assert all(r.value is None for r in of_name(_Result(records), "certified_speed"))


def test_one_point_has_the_whole_error_probability(steps):
    """Three changes pass alone at the whole level, and do not beside four other points."""
    count = len(steps.parts[1])
    epsilon = 0.05
    limit = max(c for c in range(count) if binom.cdf(c, count, epsilon) <= 0.05)
    _, ours = pretend(steps, [(0, 0), (0, limit)], [1.0, 2.0])
    object.__setattr__(steps, "options", replace(steps.options, agree=0.95))
    certify(steps)
    (point,) = steps.state.points
    assert point.candidate == ours
    pretend(steps, [(0, 0), (0, limit + 1)], [1.0, 2.0])
    certify(steps)
    assert steps.state.points[0].candidate is None


def test_forms_below_the_floor_do_not_compete(steps):
    _, ours = pretend(steps, [(0, 0), (0, 0)], [1.0, 2.0])
    certify(steps)
    assert steps.served() == ours
    state = steps.state
    worse = tuple(replace(t, good=t.candidate.model == "dense") for t in state.candidates)
    write_state(steps.models.folder, replace(state, candidates=worse))
    certify(steps)
    assert steps.served() == DENSE


def test_forms_that_are_no_faster_than_the_reference_do_not_compete(steps):
    pretend(steps, [(0, 0), (0, 0)], [1.0, 0.99])
    certify(steps)
    assert [point.candidate for point in steps.state.points] == [None] * 5
    assert steps.served() == DENSE


def test_points_are_those_of_the_stored_answers(texts_run, steps):
    state = read_state(texts_run.folder)
    stored = load_file(texts_run.folder / FILE)
    logits = {
        part: {key: stored[stored_name(key, part)] for key in state.competing} for part in PARTS
    }
    for point in state.points:
        if point.candidate is None:
            continue
        answers = stages(point.candidate, logits["calibrate"])
        changed = changed_by(point.candidate, answers, steps.calibration_logits)
        assert (point.changed, point.count) == (int(changed.sum()), len(changed))
    assert any(timed.candidate.second < 1 for timed in state.candidates)
    for timed in state.candidates:
        answers = stages(timed.candidate, logits["choose"])
        changed = changed_by(timed.candidate, answers, steps.dense_logits)
        assert timed.changed == pytest.approx(float(np.mean(changed)))


def test_candidates_are_timed_on_texts_that_exit_as_all_do(steps, monkeypatch):
    """Those that are timed are representative by where all candidates exit, and by length."""
    timed = []

    def times(runs, inputs, **settings):
        timed.extend(inputs)
        return time_inputs(runs, inputs[:2], **settings)

    monkeypatch.setattr(certifying, "SAMPLE", 12)
    monkeypatch.setattr(certifying, "time_inputs", times)
    certifying.time_candidates(steps)
    logits = answers_of(steps, steps.forms, "choose")
    exits = [
        taken(one.candidate, stages(one.candidate, logits))[1].double()
        for one in steps.state.candidates
    ]
    choose = steps.parts[0]
    chosen = representative(torch.stack(exits).mean(0), choose.lengths, 12)
    expected = [inputs["input_ids"].tolist() for _, inputs in inputs_of(steps.task, choose, 1)]
    order = sorted(range(len(choose)), key=lambda row: (choose.lengths[row], row))
    of_row = dict(zip(order, expected, strict=True))
    assert sorted(one["input_ids"].tolist() for one in timed) == sorted(of_row[n] for n in chosen)


def test_stored_answers_are_those_of_whole_cascades(texts_run, steps):
    """The dense model's answers at the end of a cascade are taken from its own form."""
    stored = load_file(texts_run.folder / FILE)
    inputs = dict(sample_of(steps, 6))
    cascades = [key for key in steps.state.competing if key.cascades]
    assert {key.model for key in cascades} == {"dense", "slim"}
    for key in cascades:
        chain = steps.forms.chain(key, cascade=True)
        name = certifying.stored_name(key, "choose")
        for row, one in inputs.items():
            torch.testing.assert_close(
                stored[name][row], chain.every_exit(one)[0], atol=1e-4, rtol=0
            )


def sample_of(steps, count):
    """Some choosing texts by their row."""
    batches = inputs_of(steps.task, steps.parts[0], 1)
    return [(rows[0], inputs) for rows, inputs in batches[::7][:count]]


def test_answers_that_are_damaged_are_one_line(steps):
    path = steps.models.folder / FILE
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(DataError, match=r"is missing or damaged.*--overwrite") as seen:
        answers_of(steps, steps.forms, "choose")
    assert "\n" not in str(seen.value)
    path.unlink()
    with pytest.raises(DataError, match="is missing or damaged"):
        answers_of(steps, steps.forms, "choose")


def test_answers_of_a_run_that_an_earlier_version_began_are_one_line(steps):
    """It had no cuts, and its exits had no answers of their own."""
    state = steps.state
    whole = tuple(state.whole)
    write_state(steps.models.folder, replace(state, forms=whole, candidates=()))
    with pytest.raises(DataError, match=r"lacks answers.*--overwrite"):
        answers_of(steps, steps.forms, "choose")
    write_state(steps.models.folder, state)
    assert answers_of(steps, steps.forms, "choose")
    (exiting,) = (form.candidate for form in state.forms if form.candidate.exits)
    path = steps.models.folder / FILE
    save_file(
        {n: t for n, t in load_file(path).items() if n != stored_name(exiting, "choose")}, path
    )
    with pytest.raises(DataError, match=r"lacks answers.*--overwrite"):
        answers_of(steps, steps.forms, "choose")


@pytest.mark.parametrize("name", ["candidates", "certify", "verify", "answers"])
def test_every_later_step_refuses_other_engines_in_one_line(steps, monkeypatch, name):
    from sparing.slim.evidence import verify

    monkeypatch.setattr("sparing.export.forms.missing_packages", only())
    step = {
        "candidates": certifying.time_candidates,
        "certify": certify,
        "verify": lambda given: verify.verify_forms(given, 1),
        "answers": verify.answer_all,
    }[name]
    with pytest.raises(UsageError, match=r"can be built not any more.*begin it anew") as seen:
        step(steps)
    assert "\n" not in str(seen.value)


@pytest.mark.parametrize("part", [0, 1])
def test_a_form_that_answers_with_nan_is_named(steps, monkeypatch, part):
    monkeypatch.setattr("sparing.export.forms.missing_packages", only())
    rows = len(steps.parts[0])
    calls = []

    class Broken:
        def __len__(self):
            return 1

        def every_exit(self, inputs):
            calls.append(inputs)
            logits = torch.zeros(1, 1, 2)
            if len(calls) == (1 if part == 0 else rows + 1):
                logits[:] = torch.nan
            return logits

        def __call__(self, inputs):
            return torch.zeros(1, 2), torch.zeros(1)

    monkeypatch.setattr(type(steps.forms), "chain", lambda *_, **__: Broken())
    before = (steps.models.folder / FILE).read_bytes()
    with pytest.raises(DataError, match="dense, eager float32 gives answers that are not finite"):
        answer_forms(steps)
    assert (steps.models.folder / FILE).read_bytes() == before
