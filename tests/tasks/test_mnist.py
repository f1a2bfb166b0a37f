"""MNIST from idx files, packed or not, and from the hub."""

from __future__ import annotations

import gzip
import os
import struct
from pathlib import Path

import datasets
import pytest
import torch
from PIL import Image

from sparing.core.errors import DataError, UsageError
from sparing.tasks import load_task


def _write(folder, stem, count, packed=True):
    folder.mkdir(parents=True, exist_ok=True)
    pixels = bytes((image * 7 + pixel) % 256 for image in range(count) for pixel in range(784))
    labels = bytes(number % 10 for number in range(count))
    files = {
        f"{stem}-images-idx3-ubyte": struct.pack(">HBB3I", 0, 8, 3, count, 28, 28) + pixels,
        f"{stem}-labels-idx1-ubyte": struct.pack(">HBBI", 0, 8, 1, count) + labels,
    }
    for name, content in files.items():
        if packed:
            (folder / f"{name}.gz").write_bytes(gzip.compress(content))
        else:
            (folder / name).write_bytes(content)


@pytest.mark.parametrize(
    ("folder", "packed"), [("mnist", True), ("MNIST/raw", False), (".", False)], ids=str
)
def test_the_published_files_are_read(tmp_path, folder, packed):
    _write(tmp_path / folder, "train", 100, packed)
    _write(tmp_path / folder, "t10k", 30, packed)
    task = load_task("mnist", data=tmp_path)
    assert [len(split) for split in task.splits.values()] == [90, 10, 30]
    assert task.validation.labels.sort().values.tolist() == list(range(10))
    assert (task.tokens, task.labels, task.channels) == (50, tuple("0123456789"), 1)
    second = ((torch.arange(784) + 7) % 256).reshape(1, 28, 28) / 255
    torch.testing.assert_close(task.test.inputs[1] * task.pixel_deviation + task.pixel_mean, second)
    assert task.notes == (
        "subset: train holds 100 of 60000 published images",
        "subset: test holds 30 of 10000 published images",
    )
    assert task.subset


def test_other_sizes_seeds_and_fewer_examples(tmp_path):
    _write(tmp_path / "mnist", "train", 100)
    _write(tmp_path / "mnist", "t10k", 10)
    whole = load_task("mnist", data=tmp_path)
    few = load_task("mnist", data=tmp_path, examples=20, image_size=32, patch_size=8)
    assert (few.tokens, few.train.inputs.shape) == (17, (20, 1, 32, 32))
    assert torch.equal(few.validation.labels, whole.validation.labels)
    torch.testing.assert_close(
        few.test.inputs.mean((1, 2, 3)), whole.test.inputs.mean((1, 2, 3)), atol=0.05, rtol=0
    )
    other = load_task("mnist", data=tmp_path, seed=1)
    assert not torch.equal(other.validation.inputs, whole.validation.inputs)
    assert torch.equal(other.test.inputs, whole.test.inputs)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"patch_size": 5}, "patch_size must divide 28; got 5"),
        ({"patch_size": 0}, "patch_size must divide 28; got 0"),
        ({"image_size": 0}, "image_size must be at least 1; got 0"),
        ({"examples": 91}, "101 examples requested, but there are 100"),
        ({"image": 32}, "no option 'image'; did you mean 'image_size'"),
    ],
)
def test_what_is_asked_wrongly(tmp_path, options, message):
    _write(tmp_path, "train", 100)
    _write(tmp_path, "t10k", 10)
    with pytest.raises(UsageError, match=message):
        load_task("mnist", data=tmp_path, **options)


def test_what_is_missing_or_broken(tmp_path):
    with pytest.raises(DataError, match=r"put train-images-idx3-ubyte \(or .gz\) into"):
        load_task("mnist", data=tmp_path)
    _write(tmp_path, "train", 20)
    with pytest.raises(DataError, match=r"put t10k-images-idx3-ubyte"):
        load_task("mnist", data=tmp_path)
    _write(tmp_path, "t10k", 10)
    (tmp_path / "t10k-labels-idx1-ubyte.gz").write_bytes(gzip.compress(b"\0\0\x08\x01")[:-4])
    with pytest.raises(DataError, match=r"t10k-labels-idx1-ubyte.gz is cut short"):
        load_task("mnist", data=tmp_path)


def _hub(counts, size=28):
    kinds = datasets.ClassLabel(names=[str(number) for number in range(10)])
    features = datasets.Features({"image": datasets.Image(), "label": kinds})
    parts = {}
    for split, count in counts.items():
        pictures = [Image.new("L", (size, size), number) for number in range(count)]
        rows = {"image": pictures, "label": [number % 10 for number in range(count)]}
        parts[split] = datasets.Dataset.from_dict(rows, features=features)
    return datasets.DatasetDict(parts)


def test_mnist_of_the_hub(monkeypatch):
    monkeypatch.delenv("SPARING_DATA", raising=False)
    requests = []

    def load(name):
        requests.append(name)
        return _hub({"train": 40, "test": 10})

    monkeypatch.setattr(datasets, "load_dataset", load)
    task = load_task("mnist")
    assert requests == ["ylecun/mnist"]
    assert task.test.labels.tolist() == list(range(10))
    expected = torch.full((1, 28, 28), (7 / 255 - 0.1307) / 0.3081)
    torch.testing.assert_close(task.test.inputs[7], expected)
    monkeypatch.setattr(datasets, "load_dataset", lambda name: _hub({"train": 40, "test": 9}, 20))
    with pytest.raises(DataError, match="split train holds no pictures of 28 x 28"):
        load_task("mnist")


def test_without_folder_or_hub_the_error_says_what_to_put_where(monkeypatch):
    def unreachable(name):
        raise ConnectionError

    monkeypatch.delenv("SPARING_DATA", raising=False)
    monkeypatch.setattr(datasets, "load_dataset", unreachable)
    with pytest.raises(DataError, match=r"hub could not be reached.*give --data.*into its mnist/"):
        load_task("mnist")


@pytest.mark.slow
def test_the_real_files():
    if "SPARING_DATA" not in os.environ:
        pytest.skip("needs SPARING_DATA with mnist/")
    task = load_task("mnist", data=Path(os.environ["SPARING_DATA"]))
    assert [len(split) for split in task.splits.values()] == [55_000, 5000, 10_000]
    assert task.chance == pytest.approx(0.1135)
    assert (task.subset, task.notes) == (False, ())
    assert abs(float(task.train.inputs.mean())) < 0.01
    assert abs(float(task.train.inputs.std()) - 1) < 0.01
