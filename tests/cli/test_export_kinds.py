"""``sparing export`` of models of every kind of answer, read back by ``agree`` and by engines."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
)

from sparing.export.folder import open_chain
from tests.agree.kinds import save
from tests.agree.models import rows

SINGLE = rows(60)
PAIRS = [(f"{n // 4} q", f"{text} {text}") for n, text in enumerate(rows(60))]
CLASSES = {
    "number": AutoModelForSequenceClassification,
    "entities": AutoModelForTokenClassification,
    "span": AutoModelForQuestionAnswering,
}
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    root = tmp_path_factory.mktemp("kinds")
    return {kind: save(root / kind, kind) for kind in (*CLASSES, "vector")}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Single texts, and pairs, as files."""
    folder = tmp_path_factory.mktemp("texts")
    (folder / "single.txt").write_text("\n".join(SINGLE))
    lines = [json.dumps({"sentence1": a, "sentence2": b}) for a, b in PAIRS]
    (folder / "pairs.jsonl").write_text("\n".join(lines))
    return folder


def texts_for(kind, files):
    return files / ("pairs.jsonl" if kind in ("span", "number") else "single.txt")


def expected_of(folder, kind, texts):
    """The outputs of transformers or sentence-transformers itself, text by text."""
    if kind == "vector":
        from sentence_transformers import SentenceTransformer

        return list(SentenceTransformer(str(folder), device="cpu").encode(texts))
    model = CLASSES[kind].from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    outputs = []
    for text in texts:
        pair = (text,) if isinstance(text, str) else text
        with torch.inference_mode():
            made = model(**tokenizer(*pair, return_tensors="pt"))
        ends = (made.start_logits, made.end_logits) if kind == "span" else ()
        outputs.append((torch.stack(ends, -1) if ends else made.logits)[0].numpy())
    return outputs


@pytest.mark.parametrize("to", ["onnx", "openvino"])
@pytest.mark.parametrize("kind", ["number", "entities", "span", "vector"])
def test_every_kind_in_both_engines(command, models, files, tmp_path, kind, to):
    folder, texts = tmp_path / "new", texts_for(kind, files)
    chosen = ("--to", to, "--texts", texts, "--output-dir", folder, "--json")
    ended = command("export", models[kind], *chosen)
    assert ended.code == 0, ended.err
    drift = ended.json["drift"]
    assert drift["changed"] == (None if kind in ("number", "vector") else 0)
    assert drift["cosine"] == (pytest.approx(1) if kind == "vector" else None)
    some = (PAIRS if kind in ("span", "number") else SINGLE)[:6]
    expected = expected_of(models[kind], kind, some)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    columns = map(list, zip(*map(pair_of, some), strict=True))
    made, _ = open_chain(folder)(dict(tokenizer(*columns, padding=True, return_tensors="np")))
    for row, output in zip(made, expected, strict=True):
        used = row[: len(output)] if kind in ("entities", "span") else row
        np.testing.assert_allclose(used, output, atol=1e-4)
    agreed = command("agree", models[kind], folder, "--texts", texts, "--timed", "0", "--json")
    assert agreed.json["agreement"] == 1
    assert_its_lines_answer(models[kind], folder, kind)


def pair_of(text):
    return (text,) if isinstance(text, str) else text


def assert_its_lines_answer(model, folder, kind):
    """The lines of its README.md give the model's answer, without sparing."""
    lines = BLOCK.search((folder / "README.md").read_text())[1]
    names = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        exec(compile(lines, "README.md", "exec"), names)
    text = ("a question", "a passage") if kind == "span" else "a text"
    (expected,) = expected_of(model, kind, [text])
    if kind == "span":
        made = np.stack([names["start"], names["end"]], -1)
    else:
        made = names["vector" if kind == "vector" else "logits"]
    # OpenVINO may take bfloat16 where no precision is said
    np.testing.assert_allclose(made[0], expected, atol=0.02 * np.abs(expected).max())


@pytest.mark.parametrize(("kind", "to"), [("entities", "openvino"), ("vector", "openvino")])
def test_int8_of_other_kinds_is_near(command, models, files, tmp_path, kind, to):
    texts = texts_for(kind, files)
    chosen = ("--to", to, "--precision", "int8", "--texts", texts)
    ended = command("export", models[kind], *chosen, "--output-dir", tmp_path / "new", "--json")
    assert ended.code == 0, ended.err
    assert 0 < ended.json["drift"]["mean"] < 0.6


def test_a_folder_keeps_its_modules_limit_and_prompt(command, files, tmp_path):
    model = save(tmp_path / "model", "vector")
    settings = {"prompts": {"query": "ab cd "}, "default_prompt_name": "query"}
    (model / "config_sentence_transformers.json").write_text(json.dumps(settings))
    chosen = ("--texts", files / "single.txt", "--output-dir", tmp_path / "new", "--json")
    ended = command("export", model, *chosen)
    assert ended.code == 0, ended.err
    assert ended.json["drift"]["cosine"] == pytest.approx(1)
    assert json.loads((tmp_path / "new" / "chain.json").read_text())["longest"] == 24
    card = (tmp_path / "new" / "README.md").read_text()
    assert "begins with the prompt 'ab cd '" in card
    assert 'encode("ab cd a text")' in card
    assert (tmp_path / "new" / "1_Pooling" / "config.json").is_file()
    assert not list((tmp_path / "new").glob("**/*.safetensors"))
    texts = ("--texts", files / "single.txt", "--timed", "0", "--json")
    agreed = command("agree", model, tmp_path / "new", *texts)
    assert agreed.json["agreement"] == 1


def test_rows_of_another_kind_are_refused(command, models, files, tmp_path):
    folder = ("--output-dir", tmp_path / "new")
    ended = command("export", models["vector"], "--texts", files / "pairs.jsonl", *folder)
    assert (ended.code, "a vector is of one text" in ended.err) == (1, True)
    ended = command("export", models["span"], "--texts", files / "single.txt", *folder)
    assert (ended.code, "a question and its passage" in ended.err) == (1, True)
    assert not (tmp_path / "new").exists()


def test_the_drift_of_vectors_is_a_cosine(command, models, files, tmp_path):
    chosen = ("--precision", "int8", "--texts", files / "single.txt")
    ended = command("export", models["vector"], *chosen, "--output-dir", tmp_path / "new")
    assert re.search(r"the cosine is 0\.\d{4} on average, at least 0\.\d{4}", ended.out)
