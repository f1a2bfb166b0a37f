"""Generated scenes: boxes lie around the ink, and everything follows from the seed."""

from __future__ import annotations

import pytest
import torch

from sparing.core.errors import UsageError
from sparing.tasks import load_task
from sparing.tasks.scenes import GROUND


@pytest.fixture(scope="module")
def scenes():
    return load_task("scenes", examples=60)


def test_sizes_and_classes(scenes):
    assert [len(split) for split in scenes.splits.values()] == [60, 500, 1000]
    assert scenes.train.inputs.shape == (60, 1, 64, 64)
    assert scenes.train.labels.bincount().tolist() == [6] * 10
    assert (scenes.tokens, scenes.classes, scenes.chance) == (65, 10, 0.1)
    raw = scenes.test.inputs * scenes.pixel_deviation + scenes.pixel_mean
    assert raw.min() >= 0
    assert raw.max() <= 1


def test_the_brightest_ink_lies_in_the_box(scenes):
    raw = (scenes.train.inputs[:, 0] + 1) / 2
    corners = scenes.train.boxes.clone() * 64
    for image, (x, y, width, height) in zip(raw, corners.tolist(), strict=True):
        rows, columns = (image > GROUND + 0.02).nonzero(as_tuple=True)
        assert len(rows)
        assert y - height / 2 <= rows.min()
        assert rows.max() < y + height / 2
        assert x - width / 2 <= columns.min()
        assert columns.max() < x + width / 2
    sides = corners[:, 2:]
    assert sides.min() >= 2
    assert sides.max() <= 32
    assert ((corners[:, :2] - sides / 2) >= 0).all()
    assert ((corners[:, :2] + sides / 2) <= 64).all()


def test_the_seed_alone_decides(scenes):
    again = load_task("scenes", examples=60)
    assert torch.equal(again.train.inputs, scenes.train.inputs)
    assert torch.equal(again.test.boxes, scenes.test.boxes)
    other = load_task("scenes", examples=60, seed=1)
    assert not torch.equal(other.train.inputs, scenes.train.inputs)


def test_boxes_travel_with_their_images(scenes):
    chosen = scenes.train.subset([7, 2])
    assert torch.equal(chosen.boxes, scenes.train.boxes[[7, 2]])
    batch = scenes.collate([chosen[0], chosen[1]])
    assert torch.equal(batch["boxes"], chosen.boxes)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"image_size": 24}, "image_size must be at least 32"),
        ({"patch_size": 7}, "a multiple of patch_size; got 64 and 7"),
        ({"examples": 0}, "examples must be at least 1"),
    ],
)
def test_mistakes_get_one_clear_line(options, message):
    with pytest.raises(UsageError, match=message):
        load_task("scenes", **options)


def test_a_seed_below_nothing_is_refused():
    with pytest.raises(UsageError, match="seed must be 0 or more"):
        load_task("scenes", seed=-1)
