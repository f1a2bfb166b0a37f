"""Photos of flowers: as published, divided already, or as arrays."""

from __future__ import annotations

import io
import os
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from sparing.core.errors import DataError, UsageError
from sparing.tasks import load_task
from sparing.tasks.flowers import LABELS

SMALL = {"image_size": 8, "patch_size": 4}


def _photo(red):
    file = io.BytesIO()
    Image.new("RGB", (12, 8), (red, 0, 0)).save(file, "JPEG", quality=95)
    return file.getvalue()


def _layout(root, counts=(10,) * 5, above=""):
    for number, (kind, count) in enumerate(zip(LABELS, counts, strict=True)):
        class_dir = root / "flower_photos" / above / kind
        class_dir.mkdir(parents=True)
        for index in range(count):
            (class_dir / f"{index}.jpg").write_bytes(_photo(50 * number + 5 * index))
    (root / "flower_photos" / "LICENSE.txt").write_text("many authors")
    return root


def _arrays(path, classes=LABELS):
    chance = np.random.default_rng(0)
    content = {"class_names": np.array(classes)}
    for split, count in (("train", 40), ("val", 10)):
        content[f"x_{split}"] = chance.integers(0, 256, (count, 16, 16, 3), np.uint8)
        content[f"y_{split}"] = np.arange(count, dtype=np.uint8) % 5
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, **content)


def test_a_fifth_of_the_published_photos_is_the_test_split(tmp_path):
    task = load_task("flowers", data=_layout(tmp_path / "flowers").parent, **SMALL)
    assert [len(split) for split in task.splits.values()] == [36, 4, 10]
    assert torch.bincount(task.test.labels).tolist() == [2] * 5
    assert (task.labels, task.metrics, task.tokens) == (LABELS, ("accuracy",), 5)
    assert task.notes == ("subset: 50 of 3670 published photos",)
    assert task.subset
    labels = torch.cat([split.labels for split in task.splits.values()])
    reds = torch.cat([split.inputs[:, 0].mean((1, 2)) for split in task.splits.values()])
    # every photo once, and each under its own class
    assert torch.equal(reds.argsort(), (labels * 1000 + reds).argsort())
    assert len(reds.unique()) == 50


def test_archive_and_folder_are_read_alike_and_the_seed_cuts(tmp_path):
    _layout(tmp_path / "a")
    (tmp_path / "b").mkdir()
    with tarfile.open(tmp_path / "b" / "flower_photos.tgz", "w:gz") as tar:
        for path in sorted((tmp_path / "a").rglob("*.jpg"), reverse=True):
            tar.add(path, path.relative_to(tmp_path / "a"))
    plain, packed = (load_task("flowers", data=tmp_path / name, **SMALL) for name in "ab")
    for split in plain.splits:
        assert torch.equal(plain.split(split).inputs, packed.split(split).inputs)
    other = load_task("flowers", data=tmp_path / "a", **SMALL, seed=1)
    assert not torch.equal(other.test.inputs, plain.test.inputs)
    few = load_task("flowers", data=tmp_path / "a", **SMALL, examples=7)
    assert len(few.train) == 7
    assert torch.equal(few.test.inputs, plain.test.inputs)


def test_val_is_the_test_split_where_there_is_one(tmp_path):
    _layout(tmp_path, above="train")
    _layout(tmp_path, counts=(2,) * 5, above="val")
    task = load_task("flowers", data=tmp_path, **SMALL)
    assert [len(split) for split in task.splits.values()] == [45, 5, 10]
    assert task.test.labels.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]


def test_the_whole_set_goes_before_arrays_and_these_before_samples(tmp_path):
    _arrays(tmp_path / "flowers" / "flower_photos_part.npz")
    (tmp_path / "flowers" / "flower_photos_few.tar").write_bytes(b"never opened")
    task = load_task("flowers", data=tmp_path, image_size=16, patch_size=4)
    assert [len(split) for split in task.splits.values()] == [36, 4, 10]
    assert (task.chance, task.subset) == (0.2, True)
    _layout(tmp_path / "flowers", counts=(4,) * 5)
    task = load_task("flowers", data=tmp_path, image_size=16, patch_size=4)
    assert sum(len(split) for split in task.splits.values()) == 20


def test_what_is_wrong_is_named(tmp_path, monkeypatch):
    _layout(tmp_path)
    with pytest.raises(UsageError, match="patch_size must divide image_size; got 5 and 64"):
        load_task("flowers", data=tmp_path, patch_size=5)
    with pytest.raises(UsageError, match="no option 'size'"):
        load_task("flowers", data=tmp_path, size=5)
    roses = tmp_path / "flower_photos" / "roses"
    roses.rename(tmp_path / "flower_photos" / "rose")
    with pytest.raises(
        DataError, match="'rose' is not one of the five flowers; did you mean 'roses'"
    ):
        load_task("flowers", data=tmp_path)
    shutil.rmtree(tmp_path / "flower_photos" / "rose")
    with pytest.raises(DataError, match="flower_photos holds no photo of roses"):
        load_task("flowers", data=tmp_path)
    shutil.rmtree(tmp_path / "flower_photos")
    with pytest.raises(DataError, match=r"put the folder flower_photos, or flower_photos.tgz"):
        load_task("flowers", data=tmp_path)
    (tmp_path / "flower_photos.tgz").write_bytes(b"no archive")
    with pytest.raises(DataError, match="is damaged or cut short"):
        load_task("flowers", data=tmp_path)
    monkeypatch.delenv("SPARING_DATA", raising=False)
    with pytest.raises(DataError, match="give --data or set SPARING_DATA"):
        load_task("flowers")


@pytest.mark.slow
def test_the_real_files(tmp_path):
    if "SPARING_DATA" not in os.environ:
        pytest.skip("needs SPARING_DATA with flowers/")
    data = Path(os.environ["SPARING_DATA"])
    task = load_task("flowers", data=data)
    assert [len(split) for split in task.splits.values()] == [360, 40, 100]
    assert (task.labels, task.chance) == (LABELS, 0.2)
    shutil.copy(data / "flowers" / "flower_photos_originals_40.tar", tmp_path)
    few = load_task("flowers", data=tmp_path)
    assert [len(split) for split in few.splits.values()] == [27, 3, 10]
