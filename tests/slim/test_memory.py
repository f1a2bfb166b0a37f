"""The peak of every tested form: which forms there are, and that each is the model it says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import sparing
from sparing.export.dense import dense_segment
from sparing.export.folder import export_chain
from sparing.export.onnx import export_onnx
from sparing.foreign.pretrained import write_pretrained
from sparing.layers.plan import narrowed
from sparing.measure.memory import PeakMemory
from sparing.slim.evidence import memory
from sparing.slim.evidence.candidates import Candidate
from sparing.slim.evidence.memory import Stored
from sparing.transfer.freezing import segments
from tests.transfer.classifiers import dense, texts

GIVEN = texts([12, 5, 9])
EAGER = Candidate("dense", "eager", "float32")
ONNX = Candidate("dense", "onnxruntime", "float32")
OURS = Candidate("slim", "onnxruntime", "float32", threshold=0.5)


@pytest.fixture(scope="module")
def model():
    return dense("bert", dtype=torch.float32, num_hidden_layers=2)


@pytest.fixture(scope="module")
def ours(model):
    return sparing.adapt(model, exits=(1,))


@pytest.fixture
def called(monkeypatch):
    """The answers of every form, each called here instead of in a fresh process."""
    calls = []

    def peak(target, arguments, *, threads):
        assert target == "sparing.slim.evidence.memory:call_of"
        calls.append(memory.call_of(**arguments)())
        return PeakMemory(100 + len(calls), "measured", "cpu", "pretended")

    monkeypatch.setattr(memory, "peak_memory", peak)
    return calls


def test_every_form_is_called_and_answers_as_its_model(model, ours, called, tmp_path):
    plan = replace(narrowed(ours.encoder.sizes, 0.5), exits=(1,), threshold=0.5)
    example = {name: value[:, :6] for name, value in GIVEN.items()}
    write_pretrained(model, tmp_path / "model")
    whole = tmp_path / "dense.onnx"
    export_onnx(dense_segment(model), example, whole)
    ours.plan = plan
    parts = export_chain(segments(ours), example, tmp_path / "slim", threshold=plan.threshold)
    cascade = replace(OURS, cascade=True)
    forms = [
        Stored(EAGER, (tmp_path / "model",)),
        Stored(ONNX, (whole,)),
        Stored(OURS, tuple(parts)),
        Stored(cascade, (*parts, whole)),
    ]
    records = memory.peaks(forms, GIVEN)
    peaks = [record for record in records if record.name == "peak_bytes"]
    assert [Candidate.from_labels(record.labels) for record in peaks] == [
        *(EAGER, ONNX, OURS, cascade)
    ]
    assert [record.value for record in peaks] == [101, 102, 103, 104]
    assert all(r.labels["batch"] == 3 and r.labels["tokens"] == 12 for r in records)
    weights = [record.value for record in records if record.name == "weight_bytes"]
    assert 0 < weights[2] < weights[1]
    assert weights[3] == weights[2] + weights[1]
    with torch.inference_mode():
        answers = [model(**GIVEN).logits, ours(**GIVEN).logits]
    for output, expected in zip(called, (answers[0], *answers), strict=False):
        torch.testing.assert_close(output[0], expected, rtol=1e-4, atol=1e-4)


def test_weights_of_openvino_lie_beside_its_file(tmp_path):
    for name, size in (("a.xml", 10), ("a.bin", 500), ("b.xml", 10), ("b.bin", 30)):
        (tmp_path / name).write_bytes(b"0" * size)
    one = Stored(OURS, (tmp_path / "a.xml", tmp_path / "b.xml"))
    assert one.weight_bytes == 530
    assert Stored(OURS, (Path("nowhere.onnx"),)).weight_bytes == 0


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
        form = replace(OURS, settings=name, threshold=plan.threshold)
        forms.append(Stored(form, tuple(paths)))
    one, four = (r.value for r in memory.peaks(forms, texts([500] * 8)) if r.name == "peak_bytes")
    assert four < 1.5 * one
