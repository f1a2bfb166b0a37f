"""Pathfinder: are two marked ends those of one dashed curve? Images read pixel by pixel, generated.

Source: Linsley et al., 2018, arXiv 1805.08315, in the form of the Long Range Arena (Tay et al.,
2020, arXiv 2011.04006). What differs: curves are drawn by our own generator, in two grey levels
(marks are brighter than dashes), and an image is kept only where the marks could stand on one curve
or on two, about equally far apart and as far out, so that where they are tells little. What is left
at 32 pixels, where curves have little room: boosted trees on the marks' places and the ink around
them are right in 56 of 100 images. At 128 pixels, and for a linear classifier of the pixels at both
sizes, it is within 2 points of chance.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from sparing.core.errors import UsageError
from sparing.tasks._facts import Facts
from sparing.tasks._pathfinder import Curves, draw_images
from sparing.tasks._pixels import pixel_rows, pixel_task
from sparing.tasks._task import Examples, Task

FACTS = Facts(
    metrics=("accuracy",),
    licence="generated here, no rights reserved",
    source="generated; after Linsley et al. 2018, arXiv 1805.08315",
    splits="2,000 images of a stream of their own",
    chance=0.5,
)
LABELS = ("apart", "connected")
SMALLEST = 24
BATCH = 500


def load(
    *,
    data: Path | None = None,
    image_size: int = 32,
    dashes: int = 0,
    distractors: int = 0,
    examples: int = 8000,
    validation_examples: int = 1000,
    test_examples: int = 2000,
    seed: int = 0,
) -> Task:
    """Images of ``image_size`` pixels a side as sequences of grey levels behind a class token.

    Two long curves of ``dashes`` each (0: an eighth of the side, and 1) and ``distractors`` of a
    third of that (0: one for 10 pixels of the side). The arena has 32 and 128 pixels, with 160,000
    training images. Each split has its own stream of numbers and as many of both classes. ``data``
    is not needed. Raises ``UsageError`` for images without room.
    """
    if image_size < SMALLEST:
        raise UsageError(f"pathfinder: image_size must be at least {SMALLEST}, got {image_size}")
    if min(dashes, distractors) < 0:
        raise UsageError(f"pathfinder: there cannot be {min(dashes, distractors)} of anything")
    long = dashes or image_size // 8 + 1
    others = distractors or image_size // 10
    curves = Curves(image_size, long, max(2, long // 3), others)
    sizes = {"train": examples, "validation": validation_examples, "test": test_examples}
    splits = {split: _examples(f"{split} {seed}", size, curves) for split, size in sizes.items()}
    return pixel_task("pathfinder", FACTS, LABELS, splits, image_size)


def _examples(stream: str, count: int, curves: Curves) -> Examples:
    """So many images, half of each class (rounded), mixed."""
    if count < 1:
        raise UsageError(f"pathfinder: a split needs at least one image, got {count}")
    chance = np.random.default_rng([*f"pathfinder {stream}".encode()])
    labels = chance.permutation(np.arange(count) % 2)
    groups = (labels[start : start + BATCH] for start in range(0, count, BATCH))
    try:
        parts = [draw_images(chance, group, curves)[0] for group in groups]
    except ValueError as error:
        raise UsageError(f"pathfinder: {error}: fewer dashes or a larger image") from error
    pixels = torch.from_numpy(np.concatenate(parts))
    return Examples("input_ids", pixel_rows(pixels), torch.from_numpy(labels))
