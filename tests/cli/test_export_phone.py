"""``sparing export --to executorch``: programs for phones."""

from __future__ import annotations

import re
import sys

import jaxtyping
import pytest
import torch
from transformers import (
    BertConfig,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
    ViTConfig,
    ViTModel,
)

from sparing.advise.source import planned_segment
from sparing.core.errors import Unsupported, UsageError
from sparing.export.dense import dense_segment
from sparing.export.executorch import Lowered, export_executorch
from sparing.transfer.adapting.adapt import adapt
from tests.cli.conftest import WORDS
from tests.cli.test_export import BLOCK, LONGEST, SIZES, TEXTS, run_lines, saved
from tests.contract.family_folders import save_family

PHONE = ("--to", "executorch")


@pytest.fixture
def installed(monkeypatch):
    """ExecuTorch counts as installed: what is refused before it is used needs no more."""
    monkeypatch.setattr("sparing.export.executorch.require_packages", lambda: None)


@pytest.fixture
def free_sizes():
    """An export's sizes are symbols, which the checks of annotations do not know."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


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


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    path = tmp_path_factory.mktemp("texts") / "texts.txt"
    path.write_text("\n".join(TEXTS))
    return path


@pytest.mark.slow
@pytest.mark.parametrize(("precision", "largest"), [("float32", 1e-5), ("int8", 0.2)])
@pytest.mark.filterwarnings("ignore")  # of ExecuTorch's own imports
def test_a_program_answers_as_the_dense_model_on_its_own_runtime(
    command, texts, tmp_path, precision, largest
):
    pytest.importorskip("executorch")
    model, folder = saved(tmp_path / "dense", num_labels=3), tmp_path / "new"
    chosen = (*PHONE, "--precision", precision, "--texts", texts, "--output-dir", folder, "--json")
    ended = command("export", model, *chosen)
    assert ended.code == 0, ended.err
    facts = ended.json
    assert facts["drift"]["count"] == len(TEXTS)
    assert 0 < facts["drift"]["mean"] < largest
    program = facts["program"]
    assert (program["tokens"], program["delegated"]["aten::linear"]) == (LONGEST, 14)
    assert program["others"]["aten::native_layer_norm"] == 5
    assert "aten::linear" not in program["others"]
    assert facts["bytes"] == (folder / "model.pte").stat().st_size
    names = run_lines(BLOCK.search((folder / "README.md").read_text())[1], folder)
    dense = BertForSequenceClassification.from_pretrained(model).eval()
    with torch.no_grad():
        given = {name: torch.from_numpy(rows) for name, rows in names["inputs"].items()}
        expected = dense(**given).logits
    assert float((names["logits"] - expected).abs().mean() / expected.std()) < 2 * largest
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dense", "new"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_fixed_plan_of_slim_is_lowered(command, tmp_path):
    pytest.importorskip("executorch")
    slim().save_pretrained(tmp_path / "slim")
    ended = command("export", tmp_path / "slim", *PHONE, "--output-dir", tmp_path / "new")
    assert ended.code == 0, ended.err
    assert re.search(r"random inputs, .* 0 of \d+ answers changed", ended.out)
    assert re.search(r"not delegated, \d+ calls: .*layer_norm", ended.out)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_program_that_answers_differently_is_not_written(tmp_path):
    pytest.importorskip("executorch")
    words = {"vocab_size": 50, "max_position_embeddings": LONGEST}
    segment = dense_segment(BertForSequenceClassification(BertConfig(**SIZES, **words)).eval())
    inputs = {"input_ids": torch.ones(1, 4).long(), "attention_mask": torch.ones(1, 4).long()}
    with pytest.raises(Unsupported, match="answers differently at 1 x 4"):
        export_executorch(segment, inputs, tmp_path / "model.pte", tolerance=0.0)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", [BertForTokenClassification, BertForQuestionAnswering])
def test_answers_by_token_are_lowered(command, tmp_path, kind):
    pytest.importorskip("executorch")
    model = saved(tmp_path / "dense", kind)
    ended = command("export", model, *PHONE, "--output-dir", tmp_path / "new", "--json")
    assert ended.code == 0, ended.err
    assert 0 < ended.json["drift"]["mean"] < 1e-5


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("family", "tokens"),
    [
        ("distilbert", 40),
        ("mpnet", 40),
        ("modernbert", 40),
        ("deberta-v2", 5),  # as many as it has buckets: folded
        ("deberta-v2", 40),
    ],
)
@pytest.mark.usefixtures("free_sizes")
def test_families_are_lowered(command, tmp_path, family, tokens):
    pytest.importorskip("executorch")
    model = save_family(tmp_path / "dense", family, WORDS)
    chosen = (*PHONE, "--tokens", tokens, "--output-dir", tmp_path / "new")
    ended = command("export", model, *chosen, "--json")
    assert ended.code == 0, ended.err
    assert 0 <= ended.json["drift"]["mean"] < 1e-5
