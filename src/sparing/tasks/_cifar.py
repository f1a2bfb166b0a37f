"""Shared by CIFAR-10 and CIFAR-100: rows of label bytes and 3 x 32 x 32 pixels, and the hub."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from sparing.core.errors import DataError
from sparing.tasks._images import Part, from_pixels
from sparing.tasks.shared.hub import class_numbers, columns_of, from_hub, pictures_of

SIZE, PIXELS = 32, 3 * 32 * 32
BATCH_BYTES = 2**28  # CIFAR-100's training file has 154 million


def from_rows(path: Path, content: bytes, *, name: str, labels: int, classes: int) -> Part:
    """The images of a binary file; rows begin with ``labels`` label bytes, the finest last.

    Raises ``DataError`` for an incomplete row and for labels out of range.
    """
    width = labels + PIXELS
    if len(content) % width or not content:
        raise DataError(f"{path}: {len(content)} bytes are not rows of {width} bytes: get it again")
    rows = torch.from_numpy(np.frombuffer(content, np.uint8).copy()).reshape(-1, width)
    values = rows[:, labels - 1].tolist()
    if max(values) >= classes:
        raise DataError(f"{path} holds the label {max(values)}: it is not {name}")
    return from_pixels(rows[:, labels:].reshape(-1, 3, SIZE, SIZE), values)


def from_the_hub(
    task: str, repository: str, label: str, needed: str, classes: int
) -> tuple[Any, list[Part]]:
    """The hub's data set, and its training and test parts by the column of labels."""
    instead = f"give --data or set SPARING_DATA, and put {needed} into its {task}/"
    hub: Any = from_hub(task, repository, instead=instead)
    parts = []
    for split in ("train", "test"):
        pictures = pictures_of(task, hub, split, "img")
        where = f"task {task}: the hub's split {split}"
        numbers = class_numbers(where, columns_of(task, hub, split, (label,))[0], classes)
        if any(pixels.shape != (3, SIZE, SIZE) for pixels in pictures):
            raise DataError(f"{where} holds pictures that are not {SIZE} x {SIZE}")
        parts.append(Part(pictures, numbers, [str(index) for index in range(len(numbers))]))
    return hub, parts
