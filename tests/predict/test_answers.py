"""Every kind of answer, against a plain loop that answers one row after another."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    BertModel,
    pipeline,
)

import sparing
from sparing.core.errors import DataError, Unsupported, UsageError
from tests.agree.models import export, save_model
from tests.predict.files import output, texts, write_parquet
from tests.tasks.slow_windows import slow_best

COUNT = 70
PAIRS = [(f"what is {n} ?", f"{text} then {text}") for n, text in enumerate(texts(COUNT))]


@pytest.fixture
def file(tmp_path):
    return write_parquet(tmp_path / "texts.parquet", text=texts(COUNT), id=range(COUNT))


@pytest.fixture
def pairs(tmp_path):
    questions, passages = map(list, zip(*PAIRS, strict=True))
    return write_parquet(tmp_path / "pairs.parquet", question=questions, context=passages)


def predicted(folder, file, tmp_path, **settings):
    settings = {"processes": 1, "rows_a_shard": 30, **settings}
    sparing.predict(folder, file, output_dir=tmp_path / "out", **settings)
    listed = output(tmp_path / "out")
    assert [row["row"] for row in listed] == list(range(COUNT))
    assert {row["error"] for row in listed} == {None}
    return listed


def logits_of(folder, listed, kind=AutoModelForSequenceClassification):
    """The plain loop: one row at a time, without pads."""
    model, tokenizer = kind.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    for text in listed:
        row = (text,) if isinstance(text, str) else text
        inputs = tokenizer(*row, truncation=True, max_length=32, return_tensors="pt")
        with torch.inference_mode():
            yield model(**inputs).logits[0]


def test_one_class(models, file, tmp_path):
    listed = predicted(models["class"], file, tmp_path, probabilities=True, keep="id")
    names = ("negative", "neutral", "positive")
    for number, (row, logits) in enumerate(
        zip(listed, logits_of(models["class"], texts(COUNT)), strict=True)
    ):
        shares = logits.softmax(-1).tolist()
        assert row["label"] == names[int(logits.argmax())]
        assert row["probability"] == pytest.approx(max(shares), rel=1e-4)
        assert list(row["all_probabilities"].values()) == pytest.approx(shares, rel=1e-4)
        assert row["id"] == number
    assert len({row["label"] for row in listed}) == 3


def test_several_labels(models, file, tmp_path):
    listed = predicted(models["labels"], file, tmp_path, threshold=0.4)
    for row, logits in zip(listed, logits_of(models["labels"], texts(COUNT)), strict=True):
        shares = dict(zip(("insult", "spam", "threat"), logits.sigmoid().tolist(), strict=True))
        given = {name: share for name, share in shares.items() if share >= 0.4}
        assert row["labels"] == list(given)
        assert row["probabilities"] == pytest.approx(list(given.values()), rel=1e-4)
    assert len({tuple(row["labels"]) for row in listed}) > 2


def test_a_number(models, file, tmp_path):
    listed = predicted(models["number"], file, tmp_path)
    expected = [float(logits) for logits in logits_of(models["number"], texts(COUNT))]
    assert [row["number"] for row in listed] == pytest.approx(expected, rel=1e-3, abs=1e-4)


def test_entities(models, file, tmp_path):
    listed = predicted(models["entities"], file, tmp_path)
    model = AutoModelForTokenClassification.from_pretrained(models["entities"]).eval()
    tokenizer = AutoTokenizer.from_pretrained(models["entities"], model_max_length=32)
    plain = pipeline(
        "token-classification", model=model, tokenizer=tokenizer, aggregation_strategy="first"
    )
    for row, text in zip(listed, texts(COUNT), strict=True):
        found = {(one["start"], one["end"], one["entity_group"]) for one in plain(text)}
        given = {(one["start"], one["end"], one["label"]) for one in row["entities"]}
        assert given == found
        assert all(one["text"] == text[one["start"] : one["end"]] for one in row["entities"])
    assert sum(len(row["entities"]) for row in listed) > COUNT


def test_a_segment_of_a_passage(models, pairs, tmp_path):
    listed = predicted(models["span"], pairs, tmp_path)
    model = AutoModelForQuestionAnswering.from_pretrained(models["span"]).eval()
    tokenizer = AutoTokenizer.from_pretrained(models["span"])
    several = 0
    for row, (question, passage) in zip(listed, PAIRS, strict=True):
        start, end, score, windows = slow_best(model, tokenizer, question, passage, 32)
        assert (row["start"], row["end"]) == (start, end)
        assert row["answer"] == passage[row["start"] : row["end"]]
        assert row["score"] == pytest.approx(score, rel=1e-3)
        several += windows > 1
    assert 0 < several < len(PAIRS)


def test_a_vector(models, file, tmp_path):
    listed = predicted(models["vector"], file, tmp_path)
    model = BertModel.from_pretrained(models["vector"]).eval()
    tokenizer = AutoTokenizer.from_pretrained(models["vector"])
    for row, text in zip(listed, texts(COUNT), strict=True):
        inputs = tokenizer(text, truncation=True, max_length=24, return_tensors="pt")
        with torch.inference_mode():
            mean = model(**inputs).last_hidden_state[0].mean(0)
        expected = (mean / mean.norm()).numpy()
        assert np.allclose(row["vector"], expected, atol=1e-5)


def test_an_onnx_file_takes_its_labels_from_beside_it(tmp_path, file):
    folder = save_model(tmp_path / "model")
    listed = predicted(export(folder, folder / "model.onnx"), file, tmp_path)
    names = ("negative", "neutral", "positive")
    expected = [names[int(logits.argmax())] for logits in logits_of(folder, texts(COUNT))]
    assert [row["label"] for row in listed] == expected


def test_jsonl_has_the_same_rows(models, file, tmp_path):
    listed = predicted(models["entities"], file, tmp_path / "a")
    assert predicted(models["entities"], file, tmp_path / "b", format="jsonl") == listed


def test_a_copied_column_with_a_name_of_the_output(models, tmp_path):
    lines = [f'{{"text": "{text}", "label": {number}}}' for number, text in enumerate("abc" * 30)]
    (tmp_path / "texts.jsonl").write_text("\n".join(lines[:COUNT]))
    listed = predicted(models["class"], tmp_path / "texts.jsonl", tmp_path, keep=("label", "text"))
    assert [row["input_label"] for row in listed] == [str(number) for number in range(COUNT)]
    assert listed[0]["text"] == "a"
    assert listed[0]["label"] in ("negative", "neutral", "positive")


@pytest.mark.parametrize(
    ("kind", "settings", "error", "said"),
    [
        ("class", {"threshold": 0.3}, UsageError, "threshold is for models that give several"),
        ("vector", {"probabilities": True}, Unsupported, "of models that give classes or labels"),
        ("span", {}, DataError, "a question and its passage are two texts"),
        ("none", {}, UsageError, "no model at"),
    ],
)
def test_a_model_that_does_not_fit_is_refused(models, file, tmp_path, kind, settings, error, said):
    folder = models.get(kind, tmp_path / "none")
    with pytest.raises(error, match=said):
        sparing.predict(folder, file, output_dir=tmp_path / "out", processes=1, **settings)
    assert not (tmp_path / "out").exists()


def test_pairs_have_no_vector(models, pairs, tmp_path):
    with pytest.raises(DataError, match="a vector is of one text"):
        sparing.predict(models["vector"], pairs, output_dir=tmp_path / "out", processes=1)


def test_an_object_is_refused(tmp_path, file):
    with pytest.raises(UsageError, match="give a folder, a file or a hub name, not a Linear"):
        sparing.predict(torch.nn.Linear(2, 2), file, output_dir=tmp_path / "out")
