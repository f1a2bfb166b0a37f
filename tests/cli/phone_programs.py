"""Programs for phones in ExecuTorch's runtime, for an environment with the extra ``edge``.

``test_export_phone.py`` makes that environment and runs this file there.
"""

from __future__ import annotations

import re

import pytest
import torch
from transformers import (
    BertConfig,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
)

from sparing.core.errors import Unsupported
from sparing.export.dense import dense_segment
from sparing.export.executorch import export_executorch
from tests.cli.conftest import WORDS
from tests.cli.test_export import BLOCK, LONGEST, SIZES, TEXTS, run_lines, saved
from tests.cli.test_export_phone import PHONE, slim
from tests.contract.family_folders import save_family

pytestmark = pytest.mark.filterwarnings("ignore")  # of ExecuTorch's own imports


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    path = tmp_path_factory.mktemp("texts") / "texts.txt"
    path.write_text("\n".join(TEXTS))
    return path


@pytest.mark.parametrize(("precision", "largest"), [("float32", 1e-5), ("int8", 0.2)])
def test_a_program_answers_as_the_dense_model_on_its_own_runtime(
    command, texts, tmp_path, precision, largest
):
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


def test_a_fixed_plan_of_slim_is_lowered(command, tmp_path):
    slim().save_pretrained(tmp_path / "slim")
    ended = command("export", tmp_path / "slim", *PHONE, "--output-dir", tmp_path / "new")
    assert ended.code == 0, ended.err
    assert re.search(r"random inputs, .* 0 of \d+ answers changed", ended.out)
    assert re.search(r"not delegated, \d+ calls: .*layer_norm", ended.out)


def test_a_program_that_answers_differently_is_not_written(tmp_path):
    words = {"vocab_size": 50, "max_position_embeddings": LONGEST}
    segment = dense_segment(BertForSequenceClassification(BertConfig(**SIZES, **words)).eval())
    inputs = {"input_ids": torch.ones(1, 4).long(), "attention_mask": torch.ones(1, 4).long()}
    with pytest.raises(Unsupported, match="answers differently at 1 x 4"):
        export_executorch(segment, inputs, tmp_path / "model.pte", tolerance=0.0)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", [BertForTokenClassification, BertForQuestionAnswering])
def test_answers_by_token_are_lowered(command, tmp_path, kind):
    model = saved(tmp_path / "dense", kind)
    ended = command("export", model, *PHONE, "--output-dir", tmp_path / "new", "--json")
    assert ended.code == 0, ended.err
    assert 0 < ended.json["drift"]["mean"] < 1e-5


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
    model = save_family(tmp_path / "dense", family, WORDS)
    chosen = (*PHONE, "--tokens", tokens, "--output-dir", tmp_path / "new")
    ended = command("export", model, *chosen, "--json")
    assert ended.code == 0, ended.err
    assert 0 <= ended.json["drift"]["mean"] < 1e-5
