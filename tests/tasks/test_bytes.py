"""Texts byte by byte, pairs of halves, papers, and pictures as sequences."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sparing.core.errors import DataError
from sparing.tasks import load_task
from sparing.tasks._pixels import grey, pixel_rows
from sparing.tasks.retrieval import halves
from sparing.tasks.shared.table import Row
from sparing.tasks.shared.text import Reading, _bytes, _raw
from sparing.tasks.shared.words import shortened

ESCAPE = "surrogateescape"
ENDS = ("bad", "good")
TEXTS = [f"film {n} was long and its end {n} was {ENDS[n % 2]} all the same" for n in range(40)]


@pytest.fixture
def reviews(tmp_path):
    for split in ("train", "test"):
        for number, text in enumerate(TEXTS):
            review_dir = tmp_path / "imdb" / "aclImdb" / split / ("pos" if number % 2 else "neg")
            review_dir.mkdir(parents=True, exist_ok=True)
            content = f"{split} {text}".encode() + (b" \xff\xfe" if number == 3 else b"")
            (review_dir / f"{number}_7.txt").write_bytes(content)
    return tmp_path


def test_every_byte_is_a_token(reviews):
    task = load_task("imdb", data=reviews, tokenizer="bytes", max_tokens=1000)
    assert (task.vocabulary, task.pad_id) == (258, 0)
    texts = {bytes((row[1:] - 2).tolist()) for row in task.test.inputs}
    assert f"test {TEXTS[3]}".encode() + b" \xff\xfe" in texts
    assert all(row[0] == 1 for row in task.test.inputs)
    assert task.texts(task.test.inputs[0][:5].tolist()) == ["[class]", "t", "e", "s", "t"]
    short = load_task("imdb", data=reviews, tokenizer="bytes", max_tokens=20)
    assert {len(row) for row in short.train.inputs} == {20}
    assert any("more than 20 tokens" in note for note in short.notes)


@pytest.mark.parametrize("count", [1, 2])
def test_bytes_are_encoded_as_one_by_one(count):
    texts = [
        "",
        "a",
        "\u00e9\u20ac\U0001f600 end",
        "x\x00y\x85",
        b"\xff\xfe\x80".decode(errors=ESCAPE),
    ]
    texts += ["long " * 9, "\u20ac" * 20]
    pairs = [(one,) if count == 1 else (one, other) for one in texts for other in texts]
    for room in (5, 6, 9, 40, 1000):
        rows, types, cut, words, windows = _bytes(Reading("bytes", max_tokens=room)).encode(
            [Row(pair, 0) for pair in pairs]
        )
        whole = [[[1, *(2 + byte for byte in _raw(text))] for text in pair] for pair in pairs]
        expected = [shortened(*pair, *[[]] * (2 - count), room) for pair in whole]
        assert [row.tolist() for row in rows] == [[*first, *second] for first, second in expected]
        assert {row.dtype for row in rows} == {torch.int64}
        assert cut == sum(sum(map(len, pair)) > room for pair in whole)
        assert types is words is windows is None


def test_words_ask_for_utf8_or_leave_out_what_is_not(reviews):
    message = r"2 reviews are not UTF-8 text: .*3_7\.txt.*skip_broken=True.*tokenizer='bytes'"
    with pytest.raises(DataError, match=message):
        load_task("imdb", data=reviews)
    task = load_task("imdb", data=reviews, skip_broken=True)
    assert [len(split) for split in task.splits.values()] == [36, 3, 39]
    note = "2 reviews that are not UTF-8 text left out: "
    names = task.notes[0].removeprefix(note).split(", ")
    assert sorted(names) == ["test/pos/3_7.txt", "train/pos/3_7.txt"]


def test_halves_use_every_text_once_and_no_half_twice():
    rows = [Row((text,), 0) for text in TEXTS]
    pairs = halves(rows, seed=0)
    assert len(pairs) == len(rows)
    assert sum(row.label for row in pairs) == len(rows) // 2
    whole = set(TEXTS)
    for first, second in (row.texts for row in pairs if row.label):
        assert f"{first} {second}" in whole
    for first, second in (row.texts for row in pairs if not row.label):
        assert f"{first} {second}" not in whole
    assert len({row.texts[0] for row in pairs}) == len({row.texts[1] for row in pairs}) == 40
    assert pairs == halves(rows[::-1], seed=0)
    assert pairs != halves(rows, seed=1)


def test_halves_are_cut_at_the_space_nearest_the_middle():
    first, second = halves([Row(("aaaa bb cccccccc",), 0), Row(("one two",), 0)], 0)[0].texts
    assert (first, second) in {("aaaa bb", "cccccccc"), ("one", "two")}
    assert halves([Row(("nospacehere",), 0)], 0) == []


def test_retrieval_of_reviews(reviews):
    task = load_task("retrieval", data=reviews, max_tokens=60)
    assert task.chance == 0.5
    assert task.labels == ("apart", "together")
    assert all(int((row == 1).sum()) == 2 for row in task.test.inputs)
    assert max(task.test.lengths) <= 60
    assert any("halves of film reviews" in note for note in task.notes)


def test_pictures_as_sequences_of_grey_levels(tmp_path):
    folder = tmp_path / "cifar10"
    folder.mkdir()
    chance = np.random.default_rng(0)
    pixels = chance.integers(0, 256, (40, 32, 32, 3), dtype=np.uint8)
    labels = np.arange(40) % 10
    names = np.array([str(n) for n in range(10)])
    arrays = {"x_train": pixels, "y_train": labels, "x_test": pixels, "y_test": labels}
    np.savez(folder / "cifar10.npz", class_names=names, **arrays)
    task = load_task("cifar10", data=tmp_path, as_tokens=True)
    assert (task.kind, task.tokens, task.vocabulary) == ("tokens", 1025, 258)
    expected = (pixels[0] @ np.array([0.299, 0.587, 0.114])).flatten()
    sequence = task.test.inputs[0]
    assert sequence[0] == 1
    assert np.abs(sequence[1:].numpy() - 2 - expected).max() <= 1.01
    assert len(task.train) == 36


def test_grey_is_luminance():
    colours = torch.zeros(3, 3, 1, 1, dtype=torch.uint8)
    colours[0, 0], colours[1, 1], colours[2, 2] = 255, 255, 255
    assert grey(colours).flatten().tolist() == [76, 150, 29]
    assert pixel_rows(grey(colours)).tolist() == [[1, 78], [1, 152], [1, 31]]
