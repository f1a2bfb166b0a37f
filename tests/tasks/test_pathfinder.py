"""Pathfinder: labels that hold, nothing that gives them away, and the same images for a seed."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.ndimage import binary_dilation, label

from sparing.core.errors import UsageError
from sparing.tasks import load_task
from sparing.tasks._pathfinder import DASH_LEVEL, MARK_LEVEL, Curves, _draw, _marks, draw_images

SMALL = {"examples": 60, "validation_examples": 20, "test_examples": 40}


def drawn(count=300, side=32, seed=1):
    labels = np.random.default_rng(0).permutation(np.arange(count) % 2)
    curves = Curves(side, side // 8 + 1, 2, side // 10)
    images, away = draw_images(np.random.default_rng(seed), labels, curves)
    return images, away, labels


@pytest.mark.parametrize("side", [32, 64, 128])
def test_labels_are_what_a_flood_finds(side):
    chance, labels = np.random.default_rng(2), np.arange(200) % 2
    images, ends, good = _draw(chance, 200, Curves(side, side // 8 + 1, 2, side // 10))
    assert good.sum() > 20
    marks = _marks(chance, ends, labels)
    near = np.ones((3, 3))
    for place in np.flatnonzero(good):
        # dashes reach each other over a gap of two pixels; other curves are farther away
        parts, _ = label(binary_dilation(images[place], near), structure=near)
        one, two = (parts[tuple(mark)] for mark in marks[place])
        assert one
        assert two
        assert (one == two) == labels[place]


def test_neither_distance_nor_ink_tells_the_class():
    images, away, labels = drawn(1000)
    for fact in (away, (images > 0).mean((1, 2))):
        shares = [((fact > bound) == labels).mean() for bound in np.unique(fact)]
        assert max(*shares, 1 - min(shares)) < 0.64


def test_marks_are_two_bright_squares():
    images, _, _ = drawn(50)
    assert set(np.unique(images)) == {0, DASH_LEVEL, MARK_LEVEL}
    assert ((images == MARK_LEVEL).sum((1, 2)) <= 18).all()
    assert ((images == MARK_LEVEL).sum((1, 2)) >= 12).all()


def test_the_task_is_a_sequence_of_pixels():
    task = load_task("pathfinder", **SMALL)
    assert (task.kind, task.tokens, task.vocabulary) == ("tokens", 1025, 258)
    assert [len(split) for split in task.splits.values()] == [60, 20, 40]
    assert all(int(split.labels.sum()) * 2 == len(split) for split in task.splits.values())
    assert task.chance == 0.5
    batch = task.collate([task.train[0], task.train[1]])
    assert batch["input_ids"].shape == (2, 1025)
    assert batch["input_ids"][:, 0].tolist() == [1, 1]


def test_the_seed_decides_and_splits_are_streams_of_their_own():
    one, again = (load_task("pathfinder", **SMALL) for _ in range(2))
    assert torch.equal(one.test.inputs, again.test.inputs)
    more = load_task("pathfinder", **{**SMALL, "examples": 80})
    assert torch.equal(one.test.inputs, more.test.inputs)
    other = load_task("pathfinder", **SMALL, seed=1)
    assert not torch.equal(one.test.inputs, other.test.inputs)
    rows = [row.numpy().tobytes() for split in one.splits.values() for row in split.inputs]
    assert len(set(rows)) == len(rows)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"image_size": 8}, "image_size must be at least 24"),
        ({"dashes": 60, "examples": 2}, "no room for two curves"),
        ({"examples": 0}, "at least one image"),
    ],
)
def test_what_cannot_be_drawn(given, message):
    with pytest.raises(UsageError, match=message):
        load_task("pathfinder", **{**SMALL, **given})
