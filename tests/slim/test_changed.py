"""The file of changed answers: what is in it, and how it is read."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from transformers import BertTokenizer

from sparing.core.compressed import compress_file
from sparing.core.errors import DataError
from sparing.experiment.owned import CHANGED, FILES
from sparing.slim.evidence.changed import changed_of, read_changed, write_changed
from sparing.tasks import Examples, load_task
from tests.slim.records import changed
from tests.tasks.tokenizers import save_tokenizer

DENSE = torch.tensor([[2.0, 0.0], [2.0, 0.0], [0.0, 1.0], [0.0, 3.0]])
SERVED = torch.tensor([[1.0, 0.0], [0.0, 0.5], [4.0, 0.0], [0.0, 1.0]])


@pytest.fixture
def pairs(tmp_path):
    """A task of two texts with a tokenizer, and its four rows."""
    tokenizer = BertTokenizer.from_pretrained(save_tokenizer(tmp_path / "model"))
    rows = [tokenizer("good film", "bad") for _ in range(4)]
    ids = [torch.tensor(row["input_ids"]) for row in rows]
    types = [torch.tensor(row["token_type_ids"]) for row in rows]
    examples = Examples("input_ids", ids, torch.zeros(4, dtype=torch.long), types)
    task = load_task("digits", patch_size=4)
    splits = {"train": examples, "validation": examples, "test": examples}
    return replace(task, **splits, labels=("no", "yes"), tokenizer=tokenizer), examples


def test_the_most_confident_comes_first_with_both_answers(pairs):
    task, examples = pairs
    first, second = changed_of(task, examples, SERVED, DENSE)
    assert (first.index, second.index) == (2, 1)
    assert (first.dense, first.served) == ("yes", "no")
    assert first.served_confidence == pytest.approx(float(SERVED[2].softmax(-1)[0]))
    assert first.dense_confidence == pytest.approx(float(DENSE[2].softmax(-1)[1]))
    assert changed_of(task, examples, DENSE, DENSE) == []


def test_a_pair_is_two_texts_without_marks(pairs):
    task, examples = pairs
    one = changed_of(task, examples, SERVED, DENSE)[0]
    assert len(one.texts) == 2
    assert not any("[" in text for text in one.texts)
    assert "".join(one.texts[1].split()) == "bad"


def test_an_image_has_no_text():
    task = load_task("digits", patch_size=4)
    served, dense = torch.eye(10)[:3], torch.eye(10)[1:4]
    listed = changed_of(task, task.test.subset([0, 1, 2]), served, dense)
    assert [one.texts for one in listed] == [(), (), ()]


def test_what_is_written_is_read_also_compressed(tmp_path):
    assert read_changed(tmp_path) is None
    odd = replace(changed(1)[0], texts=("\ud800 lone\nline \u2028 break", "b"))
    write_changed(tmp_path, [*changed(3), odd])
    assert CHANGED in FILES
    plain = read_changed(tmp_path)
    assert plain[:3] == changed(3)
    assert len(plain) == 4
    compress_file(tmp_path / CHANGED)
    assert read_changed(tmp_path) == plain
    write_changed(tmp_path, [])
    assert read_changed(tmp_path) == []


LINE = {
    "index": 1,
    "texts": ["a"],
    "dense": "no",
    "served": "yes",
    "dense_confidence": 0.5,
    "served_confidence": 0.6,
}


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        "3",
        json.dumps({**LINE, "index": "1"}),
        json.dumps({**LINE, "index": True}),
        json.dumps({**LINE, "texts": "a"}),
        json.dumps({**LINE, "texts": [1]}),
        json.dumps({**LINE, "texts": None}),
        json.dumps({**LINE, "dense": 3}),
        json.dumps({**LINE, "more": 3}),
        json.dumps({**LINE, "served_confidence": float("nan")}),
        json.dumps({name: value for name, value in LINE.items() if name != "served"}),
        "[" * 200 + "]" * 200,
    ],
)
def test_a_damaged_line_is_named(tmp_path, line):
    (tmp_path / CHANGED).write_text(json.dumps(LINE) + "\n" + line + "\n")
    with pytest.raises(DataError, match="line 2 is not a changed answer"):
        read_changed(tmp_path)
    (tmp_path / CHANGED).write_text(json.dumps(LINE) + "\n")
    assert len(read_changed(tmp_path)) == 1


def test_bytes_that_are_no_text_are_named(tmp_path):
    (tmp_path / CHANGED).write_bytes(b"\xff\xfe{}\n")
    with pytest.raises(DataError, match="line 1"):
        read_changed(tmp_path)
