"""Every form of a model answers as the model does, is built when opened, or says why not."""

from __future__ import annotations

import sys

import pytest
import torch

from sparing.core.errors import Unsupported
from sparing.export import forms as module
from sparing.export.drift import measure_drift
from sparing.export.engine import Chain
from sparing.export.folder import open_chain
from sparing.export.forms import Form, Forms
from sparing.export.int8 import Int8Settings
from sparing.export.openvino import has_bfloat16
from tests.export.segments import TOKENS, Answers, image_segments, images, one, text_segments, texts

EVERY = [
    ("eager", "float32"),
    ("eager", "bfloat16"),
    ("onnxruntime", "float32"),
    ("onnxruntime", "int8"),
    ("openvino", "float32"),
    ("openvino", "bfloat16"),
    ("openvino", "int8"),
]
CALIBRATION = [one(texts(20, seed=3), number) for number in range(20)]


@pytest.fixture(autouse=True)
def _native(monkeypatch):
    """The order of forms does not depend on this machine; opening them in bfloat16 does."""
    monkeypatch.setattr(module, "has_bfloat16", lambda: True)
    monkeypatch.setattr(module, "multiplies_bfloat16", lambda: True)


def dense():
    torch.manual_seed(0)
    return Answers(1).eval()


def kinds(forms):
    return [(form.engine, form.precision) for form in forms]


def test_every_form_answers_as_the_model(tmp_path):
    model = dense()
    forms = Forms([model], texts(2, 8), tmp_path, longest=TOKENS, calibration=CALIBRATION)
    assert kinds(forms) == EVERY
    assert not forms.missing
    assert not list(tmp_path.iterdir())  # nothing is built yet
    rows = [one(texts(30), number) for number in range(30)]
    for form in forms:
        if form.precision == "bfloat16" and not has_bfloat16():
            continue
        chain = forms[form]
        assert (chain.back_end, chain.precision) == (form.engine, form.precision)
        assert (chain.longest, chain.thread_count, len(chain)) == (TOKENS, 1, 1)
        drift = measure_drift(Chain([model]), chain, rows, "class")
        assert drift.mean < {"float32": 1e-5, "bfloat16": 0.1, "int8": 0.5}[form.precision], form
        assert (drift.mean > 1e-5) is (form.precision != "float32")
    assert next(model.parameters()).dtype == torch.float32  # a copy is cast


def test_files_are_written_once(tmp_path, monkeypatch):
    calls = []
    real = module.export_chain
    monkeypatch.setattr(module, "export_chain", lambda *a, **o: calls.append(1) or real(*a, **o))
    forms = Forms([dense()], texts(2, 8), tmp_path, int8=[Int8Settings(), Int8Settings("tensor")])
    for form in forms:
        if form.engine != "eager" and form.precision != "bfloat16":
            forms[form]
    assert len(calls) == 1
    named = [str(form) for form in forms if form.precision == "int8"]
    assert named[:2] == [f"onnxruntime int8, {Int8Settings(s)}" for s in ("channel", "tensor")]


def test_a_chain_with_exits_has_forms_too(tmp_path):
    segments, inputs = text_segments(), texts()
    forms = Forms(segments, texts(2, 8), tmp_path, threshold=0.8, longest=TOKENS)
    expected = Chain(segments, 0.8)(inputs)
    for form in (Form("onnxruntime", "float32"), Form("openvino", "float32")):
        logits, left = forms[form](inputs)
        assert left.tolist() == expected[1].tolist()
        torch.testing.assert_close(logits, expected[0], rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(not has_bfloat16(), reason="the processor does not multiply in bfloat16")
def test_images_in_bfloat16(tmp_path):
    segments = image_segments()
    forms = Forms(segments, images(2), tmp_path)
    drift = measure_drift(
        Chain(segments),
        forms[forms.find("eager", "bfloat16")],
        [{"pixel_values": images()["pixel_values"][:1]}],
        "none",
    )
    assert 0 < drift.mean < 0.1


@pytest.mark.parametrize(
    ("packages", "left", "reason"),
    [
        (["openvino"], EVERY[:4], "openvino is not installed: pip install '.[openvino]'"),
        (["nncf"], EVERY[:6], "nncf is not installed: pip install '.[openvino]'"),
        (["onnxruntime"], EVERY[:2], "onnxruntime is not installed: pip install '.[onnx]'"),
        (
            ["onnx", "openvino"],
            EVERY[:2],
            "onnx, openvino is not installed: pip install '.[onnx,openvino]'",
        ),
    ],
)
def test_engines_that_are_not_installed_are_named(tmp_path, monkeypatch, packages, left, reason):
    for package in packages:
        monkeypatch.setitem(sys.modules, package, None)
    forms = Forms([dense()], texts(2, 8), tmp_path, calibration=CALIBRATION)
    assert kinds(forms) == left
    assert len(forms.missing) == len(EVERY) - len(left)
    assert any(reason in str(absent) for absent in forms.missing)
    with pytest.raises(Unsupported, match=r"openvino int8.* is not installed"):
        forms.find("openvino", "int8")


def test_emulated_bfloat16_and_missing_texts_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "has_bfloat16", lambda: False)
    monkeypatch.setattr(module, "multiplies_bfloat16", lambda: False)
    forms = Forms([dense()], texts(2, 8), tmp_path)
    assert [form for form in kinds(forms) if form[1] == "bfloat16"] == []
    reasons = {(m.form.engine, m.form.precision): m.reason for m in forms.missing}
    assert "emulated slowly" in reasons["openvino", "bfloat16"]
    assert "emulated slowly" in reasons["eager", "bfloat16"]
    assert reasons["openvino", "int8"] == "it is calibrated on texts: give some"


def test_a_form_is_written_into_a_folder(tmp_path):
    forms = Forms(
        text_segments(), texts(2, 8), tmp_path / "1", threshold=0.8, calibration=CALIBRATION
    )
    for engine, precision in (("onnxruntime", "int8"), ("openvino", "int8")):
        folder = tmp_path / engine
        paths = forms.write(forms.find(engine, precision), folder)
        joined = engine == "onnxruntime"
        assert [path.parent for path in paths] == ([folder / "onnx"] if joined else [folder] * 2)
        opened = open_chain(folder)
        assert (opened.back_end, opened.precision, opened.threshold) == (engine, precision, 0.8)
        assert (opened.rest is None) is (engine == "onnxruntime")
        logits = forms[forms.find(engine, precision)](texts(3))[0]
        torch.testing.assert_close(opened(texts(3))[0], logits)
    with pytest.raises(Unsupported, match="save the model itself"):
        forms.write(forms.find("eager", "float32"), tmp_path / "eager")


def test_compiled_and_torch_ao_are_on_request(tmp_path):
    forms = Forms([dense()], texts(2, 8), tmp_path, compiled=True, eager_int8=True)
    assert Form("eager", "float32", "torch.compile") in forms
    logits = forms[Form("eager", "int8", "torch.ao")](texts(4))[0]
    with torch.no_grad():
        expected = dense()(**texts(4))
    assert 0 < float((logits - expected).abs().mean()) < 0.2


def test_drift_counts_answers_by_their_kind():
    reference = torch.tensor([[2.0, 0.0], [0.0, 1.0], [-1.0, -2.0]])
    candidate = torch.tensor([[1.0, 1.5], [0.5, 1.0], [-1.0, 0.5]])
    rows = [{"row": torch.tensor(number)} for number in range(3)]

    def runs(logits):
        return lambda given: (logits[int(given["row"])][None], None)

    by_class = measure_drift(runs(reference), runs(candidate), rows, "class")
    by_label = measure_drift(runs(reference), runs(candidate), rows, "labels")
    vectors = measure_drift(runs(reference), runs(candidate), rows, "none")
    assert (by_class.changed, by_label.changed, vectors.changed) == (2, 3, None)
    assert by_class.largest == 2.5
    spread = float(reference.std(correction=0))
    assert by_class.mean == pytest.approx((1.25 + 0.25 + 1.25) / 3 / spread)
    assert str(vectors).endswith("(at most 2.5)")
    assert str(by_class).endswith("2 of 3 answers changed")


def _on(device, segments, folder):
    return Forms(segments, texts(2, 8), folder, threshold=0.8, longest=TOKENS, device=device)


def test_on_a_device_pytorch_alone_serves(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "compile_obstacle", lambda device: "")
    forms = _on("meta", [dense()], tmp_path)
    assert list(map(str, forms)) == [
        "eager float32",
        "eager bfloat16",
        "eager float32, torch.compile",
        "eager bfloat16, torch.compile",
    ]
    assert "onnxruntime float32: it runs on the CPU, not on meta" in map(str, forms.missing)
    moved = forms.parts(Form("eager", "bfloat16"))[0]
    assert {(part.device.type, part.dtype) for part in moved.parameters()} == {
        ("meta", torch.bfloat16)
    }
    assert forms.parts(Form("eager", "bfloat16"))[0] is moved  # each form is made once


def test_where_nothing_compiles_the_plain_forms_serve(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "compile_obstacle", lambda device: f"no compiler for {device}")
    forms = _on("meta", [dense()], tmp_path)
    assert list(map(str, forms)) == ["eager float32", "eager bfloat16"]
    assert "eager float32, torch.compile: no compiler for meta" in map(str, forms.missing)


def test_without_the_device_no_form_is_there(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    forms = _on("cuda", [dense()], tmp_path)
    assert not list(forms)
    assert "eager float32: PyTorch sees no CUDA device here" in map(str, forms.missing)


@pytest.mark.slow
@pytest.mark.parametrize("segments", [lambda: [dense()], text_segments])
def test_compiled_forms_on_a_device_answer_as_the_model(segments, tmp_path):
    forms = _on("cpu:0", segments(), tmp_path)  # a device by name, so the same way as a GPU's
    given = texts(4)
    expected, exits = Chain(segments(), 0.8, longest=TOKENS)(given)
    for form in forms:
        close = {"atol": 2e-2, "rtol": 2e-2} if form.precision == "bfloat16" else {}
        logits, seen = forms[form](given)
        torch.testing.assert_close(logits, expected, **close)
        if form.precision == "float32":
            assert seen.tolist() == exits.tolist()


@pytest.mark.gpu
@pytest.mark.parametrize("segments", [lambda: [dense()], text_segments])
def test_forms_on_a_gpu_answer_as_the_model(segments, tmp_path):
    forms = _on("cuda", segments(), tmp_path)
    given = texts(4)
    expected, _ = Chain(segments(), 0.8, longest=TOKENS)(given)
    for form in forms:
        close = 3e-2 if form.precision == "bfloat16" else 1e-3
        torch.testing.assert_close(forms[form](given)[0], expected, atol=close, rtol=close)
