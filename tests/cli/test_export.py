"""``sparing export``."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    BertTokenizer,
    GPT2Config,
    GPT2LMHeadModel,
    ViTConfig,
    ViTForImageClassification,
)

from sparing.export import openvino
from sparing.export.folder import open_chain
from tests.cli.conftest import WORDS

SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
}
LONGEST = 24
TEXTS = [
    f"{article} film was {mood} and {end}"
    for article in ("the", "long", "good")
    for mood in ("good", "bad", "the", "long")
    for end in ("good", "bad", "long film", "the long film")
]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
needs_bfloat16 = pytest.mark.skipif(
    not openvino.has_bfloat16(), reason="the processor does not multiply in bfloat16"
)


def saved(folder, kind=BertForSequenceClassification, **options):
    torch.manual_seed(0)
    words = {"vocab_size": len(WORDS), "max_position_embeddings": LONGEST}
    config = BertConfig(**SIZES, **words, initializer_range=0.1, **options)
    kind(config).save_pretrained(folder)
    BertTokenizer({word: number for number, word in enumerate(WORDS)}).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def dense(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("dense"), num_labels=3)


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    path = tmp_path_factory.mktemp("texts") / "texts.txt"
    path.write_text("\n".join([*TEXTS, TEXTS[0]]))
    return path


def answers(folder, texts=TEXTS[:5]):
    """The dense model's logits, one text at a time."""
    tokenizer = BertTokenizer.from_pretrained(folder)
    model = BertForSequenceClassification.from_pretrained(folder).eval()
    inputs = [tokenizer(text, return_tensors="pt") for text in texts]
    with torch.no_grad():
        return inputs, torch.cat([model(**given).logits for given in inputs])


@pytest.mark.parametrize(
    ("to", "precision", "largest"),
    [
        ("onnx", "float32", 1e-5),
        ("onnx", "int8", 0.2),
        ("openvino", "float32", 1e-5),
        pytest.param("openvino", "bfloat16", 0.05, marks=needs_bfloat16),
        ("openvino", "int8", 0.2),
    ],
)
def test_every_engine_and_precision(command, dense, texts, tmp_path, to, precision, largest):
    folder = tmp_path / "new"
    chosen = ("--to", to, "--precision", precision, "--texts", texts)
    ended = command("export", dense, *chosen, "--output-dir", folder, "--json")
    assert ended.code == 0, ended.err
    facts = ended.json
    calibrated = (to, precision) == ("openvino", "int8")
    assert facts["drift"]["count"] == len(TEXTS) - (len(TEXTS) // 2 if calibrated else 0)
    assert facts["drift"]["mean"] < largest
    assert (facts["drift"]["largest"] == 0) is False
    described = json.loads((folder / "chain.json").read_text())
    assert (described["precision"], described["longest"]) == (precision, LONGEST)
    assert described["engine"] == {"onnx": "onnxruntime"}.get(to, to)
    assert (described["rest"] is not None) is calibrated
    inputs, expected = answers(dense)
    logits = torch.cat([open_chain(folder)(given)[0] for given in inputs])
    assert float((logits - expected).abs().mean() / expected.std()) < largest
    lines = BLOCK.search((folder / "README.md").read_text())[1]
    names = run_lines(lines, folder)
    expected = open_chain(folder)({name: np.array(v) for name, v in names["inputs"].items()})[0]
    np.testing.assert_allclose(names["logits"], expected, rtol=0.02, atol=1e-4)
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


def run_lines(lines, folder):
    """The README's lines, run in its folder."""
    assert "sparing" not in lines
    names = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        exec(compile(lines.replace("a text", "the film was bad"), "README.md", "exec"), names)
    return names


def test_pairs_of_texts_keep_their_token_types(command, dense, tmp_path):
    (tmp_path / "pairs.csv").write_text("text_a,text_b\nthe film,was good\nthe long film,bad\n")
    chosen = ("--texts", tmp_path / "pairs.csv", "--output-dir", tmp_path / "new", "--json")
    ended = command("export", dense, *chosen)
    assert ended.code == 0, ended.err
    assert "token_type_ids" in ended.json["inputs"]
    assert (ended.json["drift"]["count"], ended.json["drift"]["changed"]) == (2, 0)


def test_pads_are_skipped_on_request(command, dense, texts, tmp_path):
    chosen = ("--precision", "int8", "--skip-pads", "--texts", texts)
    ended = command("export", dense, *chosen, "--output-dir", tmp_path / "new")
    assert ended.code == 0, ended.err
    assert "onnxruntime, int8, no pads computed" in ended.out
    assert f"of {len(TEXTS)} answers changed" in ended.out
    graph = onnx.load(tmp_path / "new" / "onnx" / "model.onnx").graph
    assert sum(node.name.startswith("pads/") for node in graph.node) > 8


def test_it_prints_size_and_drift_for_a_person(command, dense, tmp_path):
    ended = command("export", dense, "--output-dir", tmp_path / "new")
    assert ended.code == 0, ended.err
    assert re.search(r"onnxruntime, float32: \d+\.\d MB; \d+\.\d MB before", ended.out)
    assert re.search(r"random inputs, .* 0 of \d+ answers changed", ended.out)
    assert "README.md" in ended.out


def test_vectors_and_several_labels(command, tmp_path):
    many = saved(tmp_path / "many", problem_type="multi_label_classification", num_labels=4)
    vectors = saved(tmp_path / "vectors", BertModel)
    ended = command("export", many, "--output-dir", tmp_path / "1", "--to", "openvino", "--json")
    assert ended.json["drift"]["changed"] == 0
    ended = command("export", vectors, "--output-dir", tmp_path / "2", "--to", "openvino", "--json")
    assert ended.json["drift"]["changed"] is None
    assert ended.json["drift"]["mean"] < 1e-5
    inputs = BertTokenizer.from_pretrained(vectors)("the film", return_tensors="pt")
    assert open_chain(tmp_path / "2")(inputs)[0].shape == (1, 4, 32)


def test_images(command, tmp_path):
    torch.manual_seed(0)
    config = ViTConfig(image_size=16, patch_size=4, num_channels=1, num_labels=3, **SIZES)
    ViTForImageClassification(config).save_pretrained(tmp_path / "vit")
    chosen = ("--to", "openvino", "--output-dir", tmp_path / "new", "--json")
    ended = command("export", tmp_path / "vit", *chosen)
    assert ended.code == 0, ended.err
    assert ended.json["inputs"] == ["pixel_values"]
    assert ended.json["drift"]["mean"] < 1e-5


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("--precision", "bfloat16"), "ONNX Runtime has no products in bfloat16.*--to openvino"),
        (("--to", "openvino", "--precision", "int8"), "give --texts FILE, at least 20"),
        (("--to", "tensorrt"), "--to is 'tensorrt', not one of onnx, openvino"),
        (("--to", "openvino", "--skip-pads"), "--skip-pads is for --to onnx"),
        (("--precision", "int4"), "--precision is 'int4', not one of float32, bfloat16, int8"),
    ],
)
def test_impossible_forms_are_refused_before_the_model_is_opened(command, given, message, tmp_path):
    ended = command("export", tmp_path / "none", *given, "--output-dir", tmp_path / "new")
    assert ended.code == 2
    assert re.search(message, ended.err)
    assert not list(tmp_path.iterdir())


def test_models_that_generate_text_are_refused(command, tmp_path):
    config = GPT2Config(vocab_size=9, n_positions=8, n_embd=8, n_layer=1, n_head=2)
    GPT2LMHeadModel(config).save_pretrained(tmp_path / "decoder")
    ended = command("export", tmp_path / "decoder", "--output-dir", tmp_path / "new")
    assert (ended.code, "only encoders are exported" in ended.err) == (2, True)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [("", "few.txt"), ("one\ntwo\none", "2 distinct texts.*at least 20")],
)
def test_too_few_texts_are_refused(command, dense, tmp_path, content, message):
    (tmp_path / "few.txt").write_text(content)
    chosen = ("--to", "openvino", "--precision", "int8", "--texts", tmp_path / "few.txt")
    ended = command("export", dense, *chosen, "--output-dir", tmp_path / "new")
    assert ended.code == 1
    assert re.search(message, ended.err)


def test_tokenizers_that_are_missing_or_another_models(command, dense, texts, tmp_path):
    shutil.copytree(dense, tmp_path / "other")
    more = {word: number for number, word in enumerate([*WORDS, *map(str, range(50))])}
    more["film"], more["49"] = more["49"], more["film"]
    BertTokenizer(more).save_pretrained(tmp_path / "other")
    chosen = ("--texts", texts, "--output-dir", tmp_path / "new")
    ended = command("export", tmp_path / "other", *chosen)
    assert (ended.code, "another model's" in ended.err) == (2, True)
    for path in (tmp_path / "other").glob("*token*"):
        path.unlink()
    for path in (tmp_path / "other").glob("vocab*"):
        path.unlink()
    ended = command("export", tmp_path / "other", *chosen)
    assert (ended.code, "needs a tokenizer" in ended.err) == (2, True)
    assert not (tmp_path / "new").exists()


def test_a_full_disk_leaves_nothing(command, dense, tmp_path, monkeypatch):
    def full(*_, **__):
        raise RuntimeError("Check failed\nbasic_ios::clear: iostream error")

    monkeypatch.setattr(openvino.require("openvino"), "save_model", full)
    chosen = ("--to", "openvino", "--output-dir", tmp_path / "new")
    ended = command("export", dense, *chosen)
    assert ended.code == 1
    assert "is the disk full?" in ended.err
    assert len(ended.err.splitlines()) <= 4
    assert not list(tmp_path.iterdir())


KILLED = """
import os, signal, sys
from sparing.cli import main
from sparing.export import folder
describe_chain = folder.describe_chain
calls = []
def killed(*args, **options):
    describe_chain(*args, **options)
    calls.append(args)
    if len(calls) == 2:  # the first is of the export that is copied
        os.kill(os.getpid(), signal.SIGKILL)
folder.describe_chain = killed
main()
"""


def test_a_killed_export_leaves_no_folder_and_can_be_repeated(command, dense, tmp_path):
    words = ["export", str(dense), "--output-dir", str(tmp_path / "new")]
    ended = subprocess.run([sys.executable, "-c", KILLED, *words], capture_output=True, timeout=300)
    assert ended.returncode == -signal.SIGKILL, ended.stderr[-2000:]
    assert not (tmp_path / "new").exists()
    assert list(tmp_path.iterdir())  # what the killed process left is removed by the next one
    assert command(*words).code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


def test_a_folder_with_files_is_refused(command, dense, tmp_path):
    (tmp_path / "file").touch()
    ended = command("export", dense, "--output-dir", tmp_path)
    assert (ended.code, "is not empty" in ended.err) == (2, True)
    assert Path(tmp_path / "file").exists()
