from __future__ import annotations

import gzip
import os
import struct
from pathlib import Path

import pytest
import torch

from sparing.core.errors import DataError, UsageError
from sparing.tasks import load_task
from sparing.tasks._idx import read_idx


def _idx(*shape):
    return struct.pack(f">HBB{len(shape)}I", 0, 8, len(shape), *shape)


def _write(folder, stem, count, packed=True):
    folder.mkdir(parents=True, exist_ok=True)
    pixels = bytes((image * 7 + pixel) % 256 for image in range(count) for pixel in range(784))
    labels = bytes(number % 10 for number in range(count))
    files = {
        f"{stem}-images-idx3-ubyte": _idx(count, 28, 28) + pixels,
        f"{stem}-labels-idx1-ubyte": _idx(count) + labels,
    }
    for name, content in files.items():
        if packed:
            (folder / f"{name}.gz").write_bytes(gzip.compress(content))
        else:
            (folder / name).write_bytes(content)


@pytest.fixture(params=["fashion-mnist", "FashionMNIST/raw", "."])
def data(tmp_path, request):
    _write(tmp_path / request.param, "train", 100, packed=request.param != "FashionMNIST/raw")
    _write(tmp_path / request.param, "t10k", 30)
    return tmp_path


def test_the_published_files_are_read(data):
    task = load_task("fashion_mnist", data=data)
    assert task.name == "fashion-mnist"
    assert [len(split) for split in (task.train, task.validation, task.test)] == [90, 10, 30]
    assert task.validation.labels.sort().values.tolist() == list(range(10))
    assert task.test.labels[:12].tolist() == [*range(10), 0, 1]
    first = (torch.arange(784) % 256).reshape(1, 28, 28) / 255
    torch.testing.assert_close(task.test.inputs[0] * task.pixel_deviation + task.pixel_mean, first)
    assert (task.tokens, task.classes, task.chance) == (50, 10, 0.1)


def test_a_smaller_training_split_keeps_the_validation_split(data):
    whole = load_task("fashion-mnist", data=data)
    task = load_task("fashion-mnist", data=data, examples=20)
    assert len(task.train) == 20
    assert torch.equal(whole.validation.inputs, task.validation.inputs)


def test_the_subset_of_20000_serves_too(tmp_path, monkeypatch):
    _write(tmp_path / "fashion-mnist", "train20k", 20)
    _write(tmp_path / "fashion-mnist", "t10k", 10)
    monkeypatch.setenv("SPARING_DATA", str(tmp_path))
    assert len(load_task("fashion-mnist").train) == 18


def test_without_a_folder_the_error_says_what_to_put_where(monkeypatch, tmp_path):
    monkeypatch.delenv("SPARING_DATA", raising=False)
    with pytest.raises(DataError, match=r"give --data or set SPARING_DATA.*t10k-images.*fashion-"):
        load_task("fashion-mnist")
    with pytest.raises(UsageError, match="does not exist"):
        load_task("fashion-mnist", data=tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"put train-images-idx3-ubyte or train20k.*into"):
        load_task("fashion-mnist", data=tmp_path)


def test_patches_must_tile(data):
    with pytest.raises(UsageError, match="patch_size must divide 28; got 5"):
        load_task("fashion-mnist", data=data, patch_size=5)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("short.gz", gzip.compress(_idx(3) + b"abc")[:-12], "cut short"),
        ("plain.gz", b"not packed at all", "not a sound gzip file"),
        ("broken.gz", b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03" + b"\xff" * 40, "sound gzip"),
        ("magic", b"\x89PNG" + b"x" * 40, "not an idx file"),
        ("axes", _idx(3, 1) + b"abc", "not an idx file"),
        ("few", _idx(4) + b"abc", "should hold 4 elements but holds 3"),
        ("many", _idx(2) + b"abc", "should hold 2 elements but holds more"),
        ("empty", b"", "not an idx file"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",  # a packed file holds the time
)
def test_damaged_files_give_one_line(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        read_idx(path, 1)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_gives_one_line(tmp_path):
    with pytest.raises(DataError, match="cannot be read: No such file"):
        read_idx(tmp_path / "none", 1)


def test_files_that_do_not_belong_together(tmp_path):
    _write(tmp_path, "train", 20)
    _write(tmp_path, "t10k", 10)
    labels = tmp_path / "train-labels-idx1-ubyte.gz"
    labels.write_bytes(gzip.compress(_idx(3) + b"\0\1\2"))
    with pytest.raises(DataError, match="do not belong together"):
        load_task("fashion-mnist", data=tmp_path)
    labels.write_bytes(gzip.compress(_idx(20) + bytes([77] * 20)))
    with pytest.raises(DataError, match="no labels from 0 to 9"):
        load_task("fashion-mnist", data=tmp_path)


@pytest.mark.slow
def test_the_real_files():
    if "SPARING_DATA" not in os.environ:
        pytest.skip("needs SPARING_DATA with fashion-mnist/")
    task = load_task("fashion-mnist", data=Path(os.environ["SPARING_DATA"]))
    assert len(task.test) == 10_000
    assert task.chance == 0.1
    assert abs(float(task.train.inputs.mean())) < 0.01
    assert abs(float(task.train.inputs.std()) - 1) < 0.01
