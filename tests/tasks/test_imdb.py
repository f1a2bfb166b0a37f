from __future__ import annotations

import gzip
import io
import os
import tarfile
from pathlib import Path

import pytest
import torch

from sparing.core.errors import DataError, UsageError
from sparing.tasks import load_task


def _reviews(count):
    for split in ("train", "test"):
        for side, rating in (("neg", 2), ("pos", 9)):
            for number in range(count):
                text = f"A {side} film.<br /><br />Number {number}, {split}!"
                yield f"aclImdb/{split}/{side}/{number}_{rating}.txt", text.encode()
    yield "aclImdb/train/unsup/0_0.txt", b"nobody knows"
    yield "aclImdb/README", b"read me"


def _pack(path, files):
    with tarfile.open(path, "w:gz") as tar:
        for name, content in files:
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))


def _unpack(folder, files):
    for name, content in files:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def test_the_archive_and_the_folder_are_read_alike(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name / "imdb").mkdir(parents=True)
    _pack(tmp_path / "a" / "imdb" / "aclImdb_v1.tar.gz", reversed(list(_reviews(15))))
    _unpack(tmp_path / "b" / "imdb", _reviews(15))
    packed, plain = (load_task("imdb", data=tmp_path / name) for name in ("a", "b"))
    sizes = [len(split) for split in packed.splits.values()]
    assert sizes == [27, 3, 30]
    for split in ("train", "validation", "test"):
        assert all(map(torch.equal, packed.split(split).inputs, plain.split(split).inputs))
    assert packed.test.labels.tolist() == [0] * 15 + [1] * 15
    assert packed.labels == ("negative", "positive")
    assert packed.subset
    assert "subset: test holds 30 of 25000 published reviews" in packed.notes
    assert not list((tmp_path / "a" / "imdb").glob("*/"))


def test_more_reviews_may_be_held_out(tmp_path):
    _unpack(tmp_path, _reviews(15))
    task = load_task("imdb", data=tmp_path, held_out=10, examples=12)
    assert [len(split) for split in task.splits.values()] == [12, 10, 30]
    for count in (0, -1, 30):
        with pytest.raises(UsageError, match=f"held_out must be at least 1 and below 30 .*{count}"):
            load_task("imdb", data=tmp_path, held_out=count)


def test_reviews_are_cut_and_counted(tmp_path):
    _unpack(tmp_path, _reviews(15))
    task = load_task("imdb", data=tmp_path, max_tokens=6)
    assert task.tokens == 6
    assert "test: 30 of 30 texts have more than 6 tokens and were cut" in task.notes


def test_empty_reviews_are_named(tmp_path):
    _unpack(tmp_path, _reviews(15))
    (tmp_path / "aclImdb/test/pos/3_9.txt").write_text(" <br /> ")
    with pytest.raises(DataError, match=r"1 reviews are empty: .*test/pos/3_9.txt"):
        load_task("imdb", data=tmp_path)
    task = load_task("imdb", data=tmp_path, skip_broken=True)
    assert len(task.test) == 29
    assert "1 empty reviews left out" in task.notes[0]


def test_test_reviews_that_are_training_reviews_too_are_counted(tmp_path):
    _unpack(tmp_path, _reviews(15))
    assert not any("training reviews" in note for note in load_task("imdb", data=tmp_path).notes)
    for number in (3, 7):
        text = (tmp_path / f"aclImdb/train/neg/{number}_2.txt").read_text()
        (tmp_path / f"aclImdb/test/pos/{number}_9.txt").write_text(f"{text}\n")
    task = load_task("imdb", data=tmp_path)
    assert "test: 2 of 30 reviews are training reviews too" in task.notes
    assert len(task.test) == 30


def test_a_damaged_archive(tmp_path):
    path = tmp_path / "aclImdb_v1.tar.gz"
    _pack(path, _reviews(15))
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"aclImdb_v1\.tar\.gz is damaged or cut short"):
        load_task("imdb", data=tmp_path)
    path.write_bytes(b"no archive")
    with pytest.raises(DataError, match="is damaged or cut short"):
        load_task("imdb", data=tmp_path)
    path.unlink()
    with pytest.raises(DataError, match="put the folder aclImdb, or aclImdb_v1"):
        load_task("imdb", data=tmp_path)


@pytest.mark.slow
def test_the_real_files():
    if "SPARING_DATA" not in os.environ:
        pytest.skip("needs SPARING_DATA with imdb/")
    task = load_task("imdb", data=Path(os.environ["SPARING_DATA"]))
    assert [len(split) for split in task.splits.values()] == [9000, 1000, 10000]
    assert (task.chance, task.tokens) == (0.5, 512)
    assert task.validation.labels.sum() == 500


def test_an_archive_that_is_damaged_in_the_middle_loses_nothing_silently(tmp_path):
    path = tmp_path / "aclImdb_v1.tar"
    with tarfile.open(path, "w") as tar:
        for name, content in _reviews(15):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    whole = path.read_bytes()
    assert len(load_task("imdb", data=tmp_path).test) == 30
    middle = 1024 * 30  # a header, whose checksum no longer fits
    path.write_bytes(whole[: middle + 5] + b"x" + whole[middle + 6 :])
    with pytest.raises(DataError, match=r"is damaged or cut short.*no sound header"):
        load_task("imdb", data=tmp_path)
    path.unlink()
    packed = gzip.compress(whole)
    (tmp_path / "aclImdb_v1.tar.gz").write_bytes(packed[:-8] + b"1234" + packed[-4:])
    with pytest.raises(DataError, match=r"tar\.gz"):
        load_task("imdb", data=tmp_path)
