"""slim on a device where PyTorch alone serves; "cpu:0" takes that way on any machine."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from sparing.core.errors import UsageError
from sparing.experiment.registry import find_study
from sparing.report.page import write_report
from sparing.slim import options as module
from sparing.slim.evidence.candidates import DENSE, OURS, Candidate
from sparing.slim.promise import dense_words, form_name, torch_program
from tests.slim.conftest import of_name, run_of

COMPILED = Candidate(DENSE, "eager", "bfloat16", "torch.compile")


def test_a_device_that_is_not_here_is_refused_before_anything_is_read(
    texts_options, tmp_path, monkeypatch
):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UsageError, match="PyTorch sees no CUDA device"):
        find_study("slim").run(replace(texts_options, device="cuda"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_another_device_is_named():
    with pytest.raises(UsageError, match="did you mean 'cuda'"):
        module.Options(device="cudaa")


def test_a_compiled_form_has_a_name_of_its_own():
    plain = replace(COMPILED, settings="")
    assert str(COMPILED) == "dense, eager bfloat16, torch.compile" != str(plain)
    assert form_name(COMPILED) == "dense, compiled PyTorch bfloat16"
    int8 = Candidate(DENSE, "onnxruntime", "int8", "scales per channel")
    assert str(int8) == "dense, onnxruntime int8"  # as in the records of earlier versions


def test_a_program_makes_of_the_slim_model_what_is_served():
    served = replace(COMPILED, model=OURS)
    load = 'model = sparing.load("it")  # the plan that was cut out'
    opened = ["import sparing", "", load]
    assert torch_program(served, "cuda", '"it"').splitlines() == [
        "import torch",
        "",
        *opened,
        'model = model.to("cuda", torch.bfloat16)',
        "model = torch.compile(model, dynamic=True)",
    ]
    for form in (Candidate(OURS, "eager", "float32"), Candidate(OURS, "onnxruntime", "int8")):
        assert torch_program(form, "cpu", '"it"').splitlines() == opened
    assert torch_program(COMPILED, "cuda", '"it"').splitlines() == opened  # dense is served


def test_a_dense_model_in_pytorch_is_served_as_it_was_timed():
    served = Candidate(DENSE, "eager", "bfloat16")
    assert "sparing.adapt(model)" in dense_words(served)
    for other in (COMPILED, replace(served, engine="openvino"), replace(served, model=OURS)):
        assert dense_words(other) == ""


def _small(options, device):
    return replace(options, device=device, batches=(1,), timed_examples=8, memory=True)


def _checked(result):
    assert not result.failures
    forms = {r.labels["settings"] for r in of_name(result, "screened_speed")}
    assert forms == {"", "torch.compile"}
    assert {r.labels["engine"] for r in of_name(result, "screened_speed")} == {"eager"}
    agreed = of_name(result, "agreement", split="test", arm=DENSE, precision="float32")
    assert {r.value for r in agreed} == {1.0}
    assert not of_name(result, "peak_bytes")
    page = write_report(result.folder)["md"].read_text(encoding="utf-8")
    assert "dense, compiled PyTorch bfloat16" in page
    assert f"device: {result.config['identity']['device']}" in page


@pytest.mark.slow
def test_all_steps_go_through_on_a_device(texts_options, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "DEVICES", ("cpu", "cuda", "cpu:0"))
    result = run_of(_small(texts_options, "cpu:0"), tmp_path / "run", "onnxruntime", "openvino")
    _checked(result)
    missing = result.config["forms"]["missing"]
    assert "onnxruntime float32: it runs on the CPU, not on cpu:0" in missing


@pytest.mark.gpu
def test_all_steps_go_through_on_a_gpu(texts_options, tmp_path):
    _checked(run_of(_small(texts_options, "cuda"), tmp_path / "run"))
