"""A row that cannot be answered has the reason as its error, and costs no other row its answer."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import BertForSequenceClassification, PreTrainedTokenizerFast

import sparing
from sparing.core.errors import DataError, UsageError
from sparing.predict import answering
from sparing.tasks.shared.text import fast_tokenizer
from tests.agree.models import save_model
from tests.predict.files import output, texts, write_parquet


def errors(folder: Path) -> dict[int, str]:
    return {row["row"]: row["error"] for row in output(folder) if row["error"]}


@pytest.fixture
def run(models, tmp_path) -> Callable[..., Path]:
    def ran(model, file, **settings):
        settings = {"processes": 1, "rows_a_shard": 16, **settings}
        sparing.predict(models.get(model, model), file, output_dir=tmp_path / "out", **settings)
        return tmp_path / "out"

    return ran


def test_rows_of_parquet(run, tmp_path):
    listed = [*texts(20), "", " \n", None, "\0 a", "a" * 1_000_001]
    path = write_parquet(tmp_path / "texts.parquet", text=listed)
    faults = errors(run("class", path))
    assert faults == {
        20: "text is empty",
        21: "text is empty",
        22: "text is empty",
        23: "the text holds a null character",
        24: "the text has 1,000,001 characters; at most 1,000,000 are read: is a quote left open?",
    }


def test_numbers_are_no_texts(run, tmp_path):
    path = write_parquet(tmp_path / "texts.parquet", text=[1.5, math.nan])
    faults = errors(run("class", path, columns="text"))
    assert faults == {0: "text is no text but 1.5", 1: "text is no text but nan"}


def test_bytes_that_are_no_text(run, tmp_path):
    path = tmp_path / "texts.txt"
    path.write_bytes(b"one\n\xff\xfe two\nthree caf\xc3\xa9\n")
    assert errors(run("class", path)) == {1: "the line is no UTF-8 text"}
    path.write_bytes("caf\u00e9\n".encode("latin-1"))
    assert errors(run("class", path, encoding="latin-1", overwrite=True)) == {}


def test_a_row_without_tokens(run, tmp_path):
    folder = save_model(tmp_path / "model")
    inner = fast_tokenizer(str(folder)).backend_tokenizer
    inner.post_processor = None  # no marks at the ends
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="[PAD]")
    tokenizer.save_pretrained(folder)
    path = write_parquet(tmp_path / "texts.parquet", text=["a b", "\u200b", "c"])
    assert errors(run(folder, path)) == {1: "has no tokens"}


def test_a_question_that_leaves_no_passage(run, tmp_path):
    questions = ["what ?", "a " * 60, "who ?"]
    path = write_parquet(tmp_path / "pairs.parquet", question=questions, context=["b c"] * 3)
    assert errors(run("span", path)) == {1: "the question leaves the passage no token"}


def overflowing(folder: Path) -> Path:
    """A model that gives no finite output to a text with the letter z."""
    save_model(folder)
    model = BertForSequenceClassification.from_pretrained(folder)
    number = fast_tokenizer(str(folder)).convert_tokens_to_ids("z")
    with torch.no_grad():
        model.bert.embeddings.word_embeddings.weight[number] = 1e38
    model.save_pretrained(folder)
    return folder


def test_outputs_that_are_not_finite(run, tmp_path):
    listed = [text.replace("z", "y") for text in texts(64)]
    sound = output(run("class", write_parquet(tmp_path / "sound.parquet", text=listed)))
    for row in (3, 30, 31):
        listed[row] = "z"
    folder = overflowing(tmp_path / "model")
    path = write_parquet(tmp_path / "texts.parquet", text=listed)
    assert errors(run(folder, path, overwrite=True)) == dict.fromkeys(
        (3, 30, 31), "the model gives outputs that are not finite"
    )
    for before, row in zip(sound, output(tmp_path / "out"), strict=True):
        if not row["error"]:
            assert row["label"] == before["label"]
            assert row["probability"] == pytest.approx(before["probability"], rel=1e-4)


def test_a_model_that_fails_at_one_row(run, tmp_path, monkeypatch):
    """What an engine raises at a row is that row's error, unless it fails at all rows."""
    path = write_parquet(tmp_path / "texts.parquet", text=texts(32))
    calls = answering.outputs_of

    def failing(encoder, encoded, **how):
        if any(len(tokens) > limit for tokens in encoded):
            raise RuntimeError("invalid expand shape\nat node 7")
        return calls(encoder, encoded, **how)

    limit = 14
    monkeypatch.setattr(answering, "outputs_of", failing)
    faults = errors(run("class", path))
    assert set(faults.values()) == {"invalid expand shape at node 7"}
    assert 0 < len(faults) < 32
    limit = 3
    with pytest.raises(RuntimeError, match="invalid expand shape"):
        run("class", path, overwrite=True)


def test_memory_that_runs_out_is_no_fault_of_a_row(run, tmp_path, monkeypatch):
    path = write_parquet(tmp_path / "texts.parquet", text=texts(32))
    calls = answering.outputs_of

    def failing(encoder, encoded, **how):
        if len(encoded) > 1:
            raise MemoryError("bad_alloc")
        return calls(encoder, encoded, **how)

    monkeypatch.setattr(answering, "outputs_of", failing)
    with pytest.raises(MemoryError):
        run("class", path)


def test_strict_ends_at_the_first_bad_row(run, tmp_path):
    listed = texts(64)
    listed[40] = listed[60] = " "
    path = write_parquet(tmp_path / "texts.parquet", text=listed)
    with pytest.raises(DataError, match=r"texts.parquet: row 40: text is empty"):
        run("class", path, strict=True)
    assert len(output(tmp_path / "out")) == 32
    assert errors(run("class", path)) == dict.fromkeys((40, 60), "text is empty")
    with pytest.raises(DataError, match=r"part-00002.parquet has 1 rows with an error"):
        run("class", path, strict=True)


def test_the_tokenizer_of_another_model_is_refused(run, tmp_path):
    folder = save_model(tmp_path / "model")
    tokenizer = fast_tokenizer(str(folder))
    tokenizer.add_tokens(["xyzzy"])
    tokenizer.save_pretrained(folder)
    path = write_parquet(tmp_path / "texts.parquet", text=["a xyzzy"])
    with pytest.raises(UsageError, match="is another model's"):
        run(folder, path)
