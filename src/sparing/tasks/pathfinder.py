"""Pathfinder: are two marked ends those of one dashed curve? Images read pixel by pixel, generated.

Source: Linsley et al., 2018, arXiv 1805.08315, in the form of the Long Range Arena (Tay et al.,
2020, arXiv 2011.04006). What differs: curves come from a generator of this library, in two grey
levels (marks are brighter than dashes), and are by default about half as long as the arena's. The
curves of an image allow marks on one of them or on both. Both are about equally far from each other
and from the middle, with the curves leaving them at like angles. So the surroundings of the marks
reveal little. Some signal is left. Boosted trees see the marks' distance and the direction of the
ink in windows of 7 x 7 pixels around them. They are right in 54 of 100 images of 32 pixels and in
51 of those of 128. On windows up to 15 x 15 and the marks' positions they are right in 60 and 57. A
linear classifier of the pixels is within 2 points of chance at both sizes.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from sparing.core.errors import UsageError
from sparing.tasks._facts import Facts
from sparing.tasks._pathfinder import Curves, draw_images
from sparing.tasks._pixels import pixel_rows, pixel_task
from sparing.tasks.shared.task import Examples, Task

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
    dash_pixels: int = 3,
    gap_pixels: int = 2,
    examples: int = 8000,
    validation_examples: int = 1000,
    test_examples: int = 2000,
    seed: int = 0,
) -> Task:
    """Images of ``image_size`` pixels a side as sequences of grey levels behind a class token.

    There are two long curves of ``dashes`` each (0: an eighth of the side, and 1). There are
    ``distractors`` of a third of that length (0: one for 10 pixels of the side). ``dash_pixels``
    and ``gap_pixels`` are pixels along a curve. At 32 pixels that makes 5 dashes, 23 pixels, and 3
    distractors of 2. At 32 pixels the arena has 14 dashes of 2 pixels with gaps of 1, 41 in all,
    and 5 distractors of 4. It has 160,000 training images of that size and of 128. Each split has
    its own random stream and as many images of both classes. ``data`` is not needed. Raises
    ``UsageError`` for images without room.
    """
    if image_size < SMALLEST:
        raise UsageError(f"pathfinder: image_size must be at least {SMALLEST}; got {image_size}")
    if min(dashes, distractors) < 0:
        raise UsageError(
            f"pathfinder: dashes and distractors cannot be negative; got {min(dashes, distractors)}"
        )
    if dash_pixels < 2 or gap_pixels < 1:
        raise UsageError(
            "pathfinder: needs dash_pixels of at least 2 and gap_pixels of at least 1; got "
            f"{dash_pixels} and {gap_pixels}"
        )
    long = dashes or image_size // 8 + 1
    others = distractors or image_size // 10
    curves = Curves(image_size, long, max(2, long // 3), others, dash_pixels, gap_pixels)
    sizes = {"train": examples, "validation": validation_examples, "test": test_examples}
    splits = {split: _examples(f"{split} {seed}", size, curves) for split, size in sizes.items()}
    return pixel_task("pathfinder", FACTS, LABELS, splits, image_size)


def _examples(stream: str, count: int, curves: Curves) -> Examples:
    """``count`` images, half of each class (rounded), mixed."""
    if count < 1:
        raise UsageError(f"pathfinder: a split needs at least one image; got {count}")
    chance = np.random.default_rng([*f"pathfinder {stream}".encode()])
    labels = chance.permutation(np.arange(count) % 2)
    groups = (labels[start : start + BATCH] for start in range(0, count, BATCH))
    try:
        parts = [draw_images(chance, group, curves)[0] for group in groups]
    except ValueError as error:
        raise UsageError(f"pathfinder: {error}: fewer dashes or a larger image") from error
    pixels = torch.from_numpy(np.concatenate(parts))
    return Examples("input_ids", pixel_rows(pixels), torch.from_numpy(labels))
