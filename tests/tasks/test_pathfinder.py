"""Pathfinder: labels that hold, nothing that gives them away, and the same images for a seed."""

from __future__ import annotations

from collections import deque

import numpy as np
import pytest
import torch
from scipy.ndimage import center_of_mass, label
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

from sparing.core.errors import UsageError
from sparing.tasks import load_task
from sparing.tasks._pathfinder import (
    DASH_LEVEL,
    MARGIN,
    MARK_LEVEL,
    Curves,
    draw_images,
)

SMALL = {"examples": 60, "validation_examples": 20, "test_examples": 40}


def curves_of(side):
    long = side // 8 + 1
    return Curves(side, long, max(2, long // 3), side // 10)


def drawn(count=300, side=32, seed=1, curves=None):
    labels = np.random.default_rng(seed).permutation(np.arange(count) % 2)
    curves = curves or curves_of(side)
    images, away = draw_images(np.random.default_rng(seed), labels, curves)
    return images, away, labels


def marks_of(image):
    """The middles of both bright squares, found in the pixels."""
    parts, count = label(image == MARK_LEVEL)
    assert count == 2
    return [tuple(int(x) for x in center) for center in center_of_mass(parts > 0, parts, [1, 2])]


def connected(image, first, second, apart=3):
    """A walk from dash to dash: no step is longer than a gap."""
    ink = {(int(y), int(x)) for y, x in np.argwhere(image == DASH_LEVEL)} | {first, second}
    reached, waiting = {first}, deque([first])
    steps = range(-apart, apart + 1)
    while waiting:
        y, x = waiting.popleft()
        for pixel in ((y + down, x + right) for down in steps for right in steps):
            if pixel in ink and pixel not in reached:
                reached.add(pixel)
                waiting.append(pixel)
    return second in reached


@pytest.mark.parametrize(("side", "count"), [(24, 60), (32, 200), (128, 40)])
def test_labels_are_what_a_walk_along_the_dashes_finds(side, count):
    images, away, labels = drawn(count, side)
    for image, distance, kind in zip(images, away, labels, strict=True):
        first, second = marks_of(image)
        assert np.hypot(*np.subtract(first, second)) == pytest.approx(distance)
        assert connected(image, first, second) == kind


def test_dashes_and_gaps_of_the_arena_have_room():
    curves = Curves(32, 14, 4, 5, dash=2, gap=1)
    assert curves.points(14) == 41
    images, _, labels = drawn(20, curves=curves)
    for image, kind in zip(images, labels, strict=True):
        assert connected(image, *marks_of(image), curves.apart) == kind
    options = {"dashes": 14, "dash_pixels": 2, "gap_pixels": 1, "distractors": 5}
    task = load_task("pathfinder", **{**SMALL, **options, "examples": 10})
    short = load_task("pathfinder", **SMALL)
    ink = [(variant.test.inputs > 2).float().sum(1).mean() for variant in (task, short)]
    assert ink[0] > 1.3 * ink[1]


@pytest.mark.parametrize("side", [32, 128])
def test_everything_is_inside_the_image(side):
    images, _, _ = drawn(40, side)
    assert set(np.unique(images)) == {0, DASH_LEVEL, MARK_LEVEL}
    frame = np.ones((side, side), dtype=bool)
    frame[MARGIN:-MARGIN, MARGIN:-MARGIN] = False
    assert not (images[:, frame] == DASH_LEVEL).any()
    # a mark reaches one pixel farther than the end that it marks, and is never cut
    assert ((images == MARK_LEVEL).sum((1, 2)) == 18).all()


@pytest.fixture(scope="module")
def many():
    return drawn(2000)


def _right(model, facts, labels):
    """The share of the last third that a model gets right when trained on the rest."""
    train = len(labels) * 2 // 3
    return model.fit(facts[:train], labels[:train]).score(facts[train:], labels[train:])


def test_neither_distance_nor_ink_tells_the_class(many):
    images, away, labels = many
    ink = (images > 0).sum((1, 2))
    bright = (images == MARK_LEVEL).sum((1, 2))
    assert abs(away[labels == 1].mean() - away[labels == 0].mean()) < 0.7
    assert abs(ink[labels == 1].mean() - ink[labels == 0].mean()) < 0.5
    facts = np.stack([away, ink, bright], 1)
    trees = HistGradientBoostingClassifier(max_iter=30, max_depth=3)
    assert _right(trees, facts, labels) < 0.56


def test_a_linear_classifier_of_the_pixels_is_at_chance(many):
    images, _, labels = many
    pixels = images.reshape(len(images), -1).astype(np.float32) / MARK_LEVEL
    assert _right(LogisticRegression(C=1e-3), pixels, labels) < 0.56
    levels = np.stack([(pixels == level).mean(1) for level in np.unique(pixels)], 1)
    assert _right(LogisticRegression(), levels, labels) < 0.56


def beside_the_marks(image):
    """The marks' distance, and where the ink next to each is, seen from the line between them."""
    parts, _ = label(image == MARK_LEVEL)
    marks = np.array(center_of_mass(parts > 0, parts, [1, 2]))
    line, ink = marks[1] - marks[0], np.argwhere(image == DASH_LEVEL)
    facts = [far := np.hypot(*line)]
    for mark, (down, right) in zip(marks, (line / far, -line / far), strict=True):
        near = (ink - mark)[np.abs(ink - mark).max(1) <= 3].mean(0)
        near /= np.hypot(*near)
        facts += [near[0] * down + near[1] * right, near[0] * right - near[1] * down]
    return facts


def test_how_curves_leave_the_marks_tells_little_of_the_class(many):
    images, _, labels = many
    facts = np.array([beside_the_marks(image) for image in images])
    trees = HistGradientBoostingClassifier(max_iter=60, max_depth=4)
    # 0.85 and more where ends were marked whatever the angles there
    assert _right(trees, facts, labels) < 0.61


def test_what_is_drawn_does_not_depend_on_the_label():
    curves = Curves(32, 5, 2, 3)
    ones, zeros = (
        draw_images(np.random.default_rng(4), np.full(30, kind), curves)[0] for kind in (1, 0)
    )
    unmarked = (ones != MARK_LEVEL) & (zeros != MARK_LEVEL)
    assert ((ones == zeros) | ~unmarked).all()
    assert (ones != zeros).any((1, 2)).all()


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
        ({"dash_pixels": 1}, "dash_pixels of at least 2 and gap_pixels of at least 1; got 1 and 2"),
        ({"gap_pixels": 0}, "got 3 and 0"),
    ],
)
def test_what_cannot_be_drawn(given, message):
    with pytest.raises(UsageError, match=message):
        load_task("pathfinder", **{**SMALL, **given})


@pytest.mark.parametrize("given", [{"dashes": -1}, {"distractors": -2}])
def test_there_cannot_be_less_than_nothing(given):
    with pytest.raises(UsageError, match="dashes and distractors cannot be negative"):
        load_task("pathfinder", **given)
