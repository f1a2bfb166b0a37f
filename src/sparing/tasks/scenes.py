"""Scenes: a digit somewhere on textured ground, and its box; generated, not downloaded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from sparing.core.errors import UsageError
from sparing.tasks._facts import Facts
from sparing.tasks.shared.task import Examples, Task

FACTS = Facts(
    metrics=("accuracy",),
    licence="CC BY 4.0 (the digits)",
    source="generated here; digits of UCI Optical Recognition of Handwritten Digits (Alpaydin, "
    "Kaynak 1998), as shipped by scikit-learn",
    splits="generated, of digits that no other split has",
    chance=0.1,
)
DIGIT, SCALES = 8, (2, 3, 4)
HELD_OUT = {"validation": 500, "test": 1000}
# The largest brightness of the ground, of 1; a digit keeps its scanned brightness.
GROUND, COARSE = 0.45, 8


def load(
    *,
    data: Path | None = None,
    image_size: int = 64,
    patch_size: int = 8,
    examples: int = 3000,
    seed: int = 0,
) -> Task:
    """Grey images with one handwritten digit each, two to four times its size, anywhere.

    Every class is equally frequent. The ground is smooth noise with stripes, so contrast alone does
    not reveal the digit. Boxes are the smallest around the digit's ink. Training, validation and
    test use different handwritten digits. ``data`` is not needed.
    """
    if image_size < DIGIT * max(SCALES) or patch_size < 1 or image_size % patch_size:
        raise UsageError(
            f"scenes: image_size must be at least {DIGIT * max(SCALES)} and a multiple of "
            f"patch_size; got {image_size} and {patch_size}"
        )
    if examples < 1:
        raise UsageError(f"scenes: examples must be at least 1; got {examples}")
    counts = {"train": examples, **HELD_OUT}
    splits = {
        name: _split(number, count, image_size, seed)
        for number, (name, count) in enumerate(counts.items())
    }
    return Task(
        name="scenes",
        kind="image",
        train=splits["train"],
        validation=splits["validation"],
        test=splits["test"],
        labels=tuple(map(str, range(10))),
        tokens=(image_size // patch_size) ** 2 + 1,
        licence=FACTS.licence,
        source=FACTS.source,
        image_size=image_size,
        channels=1,
        patch_size=patch_size,
    )


def _split(number: int, count: int, size: int, seed: int) -> Examples:
    """Scenes of the digits with an index in the collection that is ``number`` modulo three."""
    from sklearn.datasets import load_digits

    if seed < 0:
        raise UsageError(f"scenes: seed must be 0 or more; got {seed}")
    chance = np.random.default_rng([seed, number])
    pictures, kinds = load_digits(return_X_y=True)
    chosen = np.arange(len(kinds)) % 3 == number
    by_class = [
        pictures[chosen & (kinds == kind)].reshape(-1, DIGIT, DIGIT) / 16 for kind in range(10)
    ]
    labels = np.arange(count) % 10
    chance.shuffle(labels)
    images, boxes = np.zeros((count, 1, size, size)), np.zeros((count, 4))
    for index, kind in enumerate(labels):
        digit = by_class[kind][chance.integers(len(by_class[kind]))]
        images[index, 0], boxes[index] = _scene(digit, size, chance)
    pixels = torch.tensor(images, dtype=torch.float32) * 2 - 1
    where = torch.tensor(boxes, dtype=torch.float32)
    return Examples("pixel_values", pixels, torch.tensor(labels), boxes=where)


def _scene(
    digit: NDArray[np.float64], size: int, chance: np.random.Generator
) -> tuple[NDArray[np.float64], tuple[float, ...]]:
    """A digit on its ground, and its box: centre, width and height in shares of the side."""
    scale = int(chance.choice(SCALES))
    drawn = np.kron(digit, np.ones((scale, scale)))
    top, left = (int(corner) for corner in chance.integers(0, size - len(drawn) + 1, 2))
    scene = _ground(size, chance)
    inside = scene[top : top + len(drawn), left : left + len(drawn)]
    np.maximum(inside, drawn, out=inside)
    ink = drawn > 0
    rows, columns = np.flatnonzero(ink.any(1)), np.flatnonzero(ink.any(0))
    height, width = rows[-1] + 1 - rows[0], columns[-1] + 1 - columns[0]
    centre = (left + columns[0] + width / 2, top + rows[0] + height / 2)
    return scene, tuple(float(side) / size for side in (*centre, width, height))


def _ground(size: int, chance: np.random.Generator) -> NDArray[np.float64]:
    """Coarse noise, smoothly enlarged, with stripes across it: from 0 to ``GROUND``."""
    coarse = torch.from_numpy(chance.random((1, 1, COARSE, COARSE)))
    smooth = torch.nn.functional.interpolate(coarse, size=(size, size), mode="bilinear")[0, 0]
    angle, period = chance.uniform(0, np.pi), chance.uniform(4, 12)
    rows, columns = np.mgrid[:size, :size]
    along = rows * np.sin(angle) + columns * np.cos(angle)
    stripes = 0.5 + 0.5 * np.sin(2 * np.pi * along / period)
    mixed: NDArray[np.float64] = GROUND * (0.6 * smooth.numpy() + 0.4 * stripes)
    return mixed
