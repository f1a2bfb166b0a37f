"""The peak of every form of a run: which forms there are, and that each is the model it says."""

from __future__ import annotations

from dataclasses import replace

import jaxtyping
import pytest
import torch

import sparing
from sparing.export.dense import dense_segment
from sparing.export.folder import export_chain
from sparing.export.onnx import export_onnx
from sparing.layers.plan import narrowed
from sparing.measure.memory import PeakMemory
from sparing.slim import memory
from sparing.slim.engines import Engines
from sparing.transfer.freezing import segments
from tests.transfer.classifiers import dense, texts

GIVEN = texts([12, 5, 9])


@pytest.fixture(autouse=True)
def _free_sizes():
    """An export's sizes are symbols, which the checks of annotations do not know."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture(scope="module")
def model():
    return dense("bert", dtype=torch.float32, num_hidden_layers=2)


@pytest.fixture(scope="module")
def ours(model):
    return sparing.adapt(model, exits=(1,))


@pytest.fixture
def called(monkeypatch):
    """What fresh processes would be asked; each form is called here instead."""
    calls = []

    def peak(target, arguments, *, threads):
        assert target == "sparing.slim.memory:call_of"
        output = memory.call_of(**arguments)()
        calls.append((arguments["engine"], output))
        return PeakMemory(100 + len(calls), "measured", "cpu", "pretended")

    monkeypatch.setattr(memory, "peak_memory", peak)
    return calls


def answers(model, plan=None):
    if plan is not None:
        model.plan = plan
    with torch.inference_mode():
        return model(**GIVEN).logits


def test_every_form_is_called_and_answers_as_its_model(model, ours, called, tmp_path):
    plan = replace(narrowed(ours.encoder.sizes, 0.5), exits=(1,), threshold=0.5)
    example = {name: value[:, :6] for name, value in GIVEN.items()}
    engines = Engines(None, tmp_path, 1, False)
    export_onnx(dense_segment(model), example, tmp_path / "dense" / "dense.onnx")
    ours.plan = plan
    export_chain(segments(ours), example, tmp_path / "chosen", threshold=plan.threshold)
    records = memory.form_peaks(engines, model, ours, plan, GIVEN)
    peaks = [r for r in records if r.name == "peak_bytes"]
    forms = [(r.labels["arm"], r.labels["engine"]) for r in peaks]
    assert forms == [(arm, e) for e in ("eager", "onnxruntime") for arm in ("dense", "slim")]
    assert all(r.labels["batch"] == 3 and r.labels["tokens"] == 12 for r in records)
    assert [r.value for r in peaks] == [101, 102, 103, 104]
    weights = {
        (r.labels["arm"], r.labels["engine"]): r.value for r in records if r.name == "weight_bytes"
    }
    assert weights["slim", "eager"] < weights["dense", "eager"]
    for (_, output), expected in zip(
        called, 2 * [answers(model), answers(ours, plan)], strict=True
    ):
        torch.testing.assert_close(output, expected, rtol=1e-4, atol=1e-4)


def test_what_has_not_been_exported_is_left_out(model, ours, called, tmp_path):
    plan = narrowed(ours.encoder.sizes, 0.5)
    records = memory.form_peaks(Engines(None, tmp_path, 1, False), model, ours, plan, GIVEN)
    assert {r.labels["engine"] for r in records} == {"eager"}
    assert [engine for engine, _ in called] == ["eager", "eager"]


def test_segments_are_taken_in_their_order(model, ours, called, tmp_path, monkeypatch):
    (tmp_path / "chosen").mkdir()
    for number in range(11):
        (tmp_path / "chosen" / f"segment-{number}.onnx").touch()
    seen = []
    monkeypatch.setattr(memory, "peaks", lambda forms, *_: seen.extend(forms) or [])
    plan = narrowed(ours.encoder.sizes, 0.5)
    memory.form_peaks(Engines(None, tmp_path, 1, False), model, ours, plan, GIVEN)
    last = seen[-1]
    assert (last.arm, last.engine) == ("slim", "onnxruntime")
    assert [path.stem for path in last.paths] == [f"segment-{n}" for n in range(11)]


@pytest.mark.slow
def test_a_chain_needs_the_memory_of_one_segment_not_of_all(tmp_path):
    """All sessions of a process share an arena."""
    plain = dense(
        "bert", torch.float32, hidden_size=64, embedding_size=64, max_position_embeddings=600
    )
    adaptive = sparing.adapt(plain, exits=(1, 2, 3, 4))
    whole = narrowed(adaptive.encoder.sizes, 1.0)
    example = texts([8, 8])
    forms = []
    for name, plan in {
        "one": whole,
        "four": replace(whole, exits=(1, 2, 3), threshold=0.999999),
    }.items():
        adaptive.plan = plan
        paths = export_chain(segments(adaptive), example, tmp_path / name)
        forms.append(memory.Form(name, "onnxruntime", tuple(paths), plan.threshold))
    one, four = (r.value for r in memory.peaks(forms, texts([500] * 8)) if r.name == "peak_bytes")
    assert four < 1.5 * one
