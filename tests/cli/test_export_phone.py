"""``sparing export --to executorch``: programs for phones."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    ViTConfig,
    ViTModel,
)

from sparing.advise.source import planned_segment
from sparing.core.errors import UsageError
from sparing.export.dense import dense_segment
from sparing.export.executorch import Lowered, export_executorch
from sparing.transfer.adapting.adapt import adapt
from tests.cli.test_export import LONGEST, SIZES, saved
from tests.environments import environment

PHONE = ("--to", "executorch")
ROOT = Path(__file__).parents[2]
PROGRAMS, SOURCES = "tests/cli/phone_programs.py", ("src", "papers", ".")


@pytest.fixture
def installed(monkeypatch):
    """ExecuTorch counts as installed: what is refused before it is used needs no more."""
    monkeypatch.setattr("sparing.export.executorch.require_packages", lambda: None)


def slim(exits=(1,), threshold=1.0):
    torch.manual_seed(0)
    words = {"vocab_size": 50, "max_position_embeddings": LONGEST, "num_labels": 3}
    model = adapt(BertForSequenceClassification(BertConfig(**SIZES, **words)).eval(), exits=[1])
    model.plan = type(model.plan)(**{**vars_of(model.plan), "exits": exits, "threshold": threshold})
    return model


def vars_of(plan):
    return {name: getattr(plan, name) for name in plan.__dataclass_fields__}


def test_a_missing_package_is_named_with_its_extra(command, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "executorch", None)
    ended = command("export", tmp_path / "none", *PHONE, "--output-dir", tmp_path / "new")
    assert ended.code == 2
    assert re.search(r"executorch.* is not installed: pip install '.\[edge\]'", ended.err)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((*PHONE, "--precision", "bfloat16"), "XNNPACK has no bfloat16 here"),
        (("--tokens", "9"), "--tokens is for --to executorch"),
    ],
)
def test_impossible_programs_are_refused_before_the_model_is_opened(
    command, given, message, tmp_path
):
    ended = command("export", tmp_path / "none", *given, "--output-dir", tmp_path / "new")
    assert ended.code == 2
    assert message in ended.err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("tokens", "message"),
    [(2, "must be more than 2; got 2"), (LONGEST + 1, f"reads at most {LONGEST} tokens")],
)
@pytest.mark.usefixtures("installed")
def test_lengths_that_no_program_reads_are_refused(command, tmp_path, tokens, message):
    model = saved(tmp_path / "dense")
    chosen = (*PHONE, "--tokens", tokens, "--output-dir", tmp_path / "new")
    ended = command("export", model, *chosen)
    assert (ended.code, message in ended.err) == (2, True), ended.err
    assert not (tmp_path / "new").exists()


@pytest.mark.usefixtures("installed")
def test_images_have_no_length(command, tmp_path):
    ViTModel(ViTConfig(image_size=16, patch_size=8, **SIZES)).save_pretrained(tmp_path / "vit")
    chosen = (*PHONE, "--tokens", 9, "--output-dir", tmp_path / "new")
    ended = command("export", tmp_path / "vit", *chosen)
    assert (ended.code, "reads images" in ended.err) == (2, True), ended.err


@pytest.mark.usefixtures("installed")
def test_a_plan_with_exits_is_refused_with_the_way_out(command, tmp_path):
    model = slim(threshold=0.6)
    model.save_pretrained(tmp_path / "slim")
    ended = command("export", tmp_path / "slim", *PHONE, "--output-dir", tmp_path / "new")
    assert ended.code == 2
    assert re.search(r"has exits \(after layers: 1\).*model.plan.without_choice", ended.err)
    assert not (tmp_path / "new").exists()
    model.plan = model.plan.without_choice
    assert planned_segment(model, "slim") is not None


def test_a_fixed_plan_is_one_segment_that_answers_as_the_model():
    model = slim()
    inputs = {"input_ids": torch.randint(1, 50, (2, 9)), "attention_mask": torch.ones(2, 9).long()}
    with torch.no_grad():
        logits = planned_segment(model, "slim")(**inputs)[1]
        torch.testing.assert_close(logits, model(**inputs).logits, rtol=1e-4, atol=1e-5)


def test_other_engines_still_refuse_a_model_of_slim(command, tmp_path):
    slim().save_pretrained(tmp_path / "slim")
    ended = command("export", tmp_path / "slim", "--output-dir", tmp_path / "new")
    assert (ended.code, "exported forms already" in ended.err) == (2, True)


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        (torch.nn.Module.train, {}, "evaluation mode"),
        (torch.nn.Module.eval, {"tokens": 2}, "tokens must be more than 2; got 2"),
    ],
)
def test_segments_that_are_not_lowered_are_refused(tmp_path, change, options, message):
    words = {"vocab_size": 50, "max_position_embeddings": LONGEST}
    segment = change(dense_segment(BertForSequenceClassification(BertConfig(**SIZES, **words))))
    inputs = {"input_ids": torch.ones(1, 4).long(), "attention_mask": torch.ones(1, 4).long()}
    with pytest.raises(UsageError, match=message):
        export_executorch(segment, inputs, tmp_path / "model.pte", **options)
    assert not list(tmp_path.iterdir())


def test_words_say_what_is_not_delegated():
    counts = ({"aten::linear": 3, "aten::add": 1}, {"aten::native_layer_norm": 2})
    words = Lowered(("input_ids",), ("logits",), 24, 2_000_000, 2, *counts).words()
    assert "model.pte: 2.0 MB; it reads a text of 2 to 24 tokens at a time" in words
    assert "XNNPACK computes 4 nodes in 2 graphs: 3 linear, 1 add" in words
    assert "not delegated, 2 calls: 2 native_layer_norm" in words


@pytest.mark.slow
def test_programs_run_in_an_environment_with_the_extra(tmp_path):
    """Its packages change how transformers is imported: the tests' own do not have them."""
    python = environment(tmp_path / "venv", "torch==2.13.0", f"{ROOT}[edge,test]")
    run = subprocess.run(
        [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", PROGRAMS],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(str(ROOT / part) for part in SOURCES)},
        capture_output=True,
        text=True,
        timeout=3600,
    )
    assert run.returncode == 0, run.stdout[-2000:]
    assert "s" not in run.stdout.split()[0]  # none is skipped
