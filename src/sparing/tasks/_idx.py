"""Grey pictures in idx files, the format of MNIST and of later data sets."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor
from torch.nn import functional as F

from sparing.core.errors import DataError, UsageError
from sparing.tasks._facts import Facts
from sparing.tasks._images import VALIDATION, Sizes
from sparing.tasks._splits import stratified
from sparing.tasks._subset import missing
from sparing.tasks.shared.files import find, opened, read_most
from sparing.tasks.shared.task import Examples, Task

SIDE = 28
MOST_ELEMENTS = 2**30  # MNIST has 47 million
PUBLISHED = {"train": 60_000, "test": 10_000}
FILES = (
    "train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and "
    "t10k-labels-idx1-ubyte (.gz as published)"
)


@dataclass(frozen=True)
class GreyPart:
    """Pictures of one byte a pixel with their class numbers."""

    images: UInt8[Tensor, "count 28 28"]
    labels: Int[Tensor, " count"]

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Levels:
    """The mean and the deviation of all training pixels between 0 and 1."""

    mean: float
    deviation: float


def grey_task(
    name: str,
    facts: Facts,
    labels: tuple[str, ...],
    train: GreyPart,
    test: GreyPart,
    levels: Levels,
    sizes: Sizes,
) -> Task:
    """A task of pictures of one channel, scaled to mean 0 and deviation 1.

    Validation takes a tenth of the training images, at most 5,000, with the classes in proportion.
    Fewer images than MNIST has are a subset, and noted. Raises ``UsageError`` for patches that do
    not tile.
    """
    check_sizes(name, sizes)
    held_out = min(VALIDATION, len(train) // 10)
    count = len(train) - held_out if sizes.examples is None else sizes.examples
    keys = [str(index) for index in range(len(train))]
    validation, fitting = stratified(train.labels.tolist(), keys, (held_out, count), sizes.seed)
    notes = missing({"train": train, "test": test}, PUBLISHED)
    return Task(
        name=name,
        kind="image",
        train=_examples(train, fitting, levels, sizes.image_size),
        validation=_examples(train, validation, levels, sizes.image_size),
        test=_examples(test, range(len(test)), levels, sizes.image_size),
        labels=labels,
        tokens=(sizes.image_size // sizes.patch_size) ** 2 + 1,
        licence=facts.licence,
        source=facts.source,
        metrics=facts.metrics,
        image_size=sizes.image_size,
        channels=1,
        patch_size=sizes.patch_size,
        pixel_mean=levels.mean,
        pixel_deviation=levels.deviation,
        subset=bool(notes),
        notes=notes,
    )


def check_sizes(name: str, sizes: Sizes) -> None:
    """Raise ``UsageError`` for patches that do not tile the image."""
    if sizes.image_size < 1:
        raise UsageError(f"{name}: image_size must be at least 1; got {sizes.image_size!r}")
    if sizes.patch_size < 1 or sizes.image_size % sizes.patch_size:
        raise UsageError(
            f"{name}: patch_size must divide {sizes.image_size}; got {sizes.patch_size!r}"
        )


def read_part(name: str, folder: Path, stems: tuple[str, ...], classes: int) -> GreyPart:
    """Images and labels of one part; both must come from the same stem.

    Raises ``DataError`` for files that are missing, damaged or do not match.
    """
    path = find(name, folder, [f"{stem}-images-idx3-ubyte" for stem in stems])
    stem = path.name.partition("-")[0]
    images = read_idx(path, 3)
    labels_path = find(name, folder, [f"{stem}-labels-idx1-ubyte"])
    labels = read_idx(labels_path, 1).long()
    if len(images) != len(labels) or images.shape[1:] != (SIDE, SIDE):
        raise DataError(
            f"{path} and {labels_path.name} do not belong together: images "
            f"{tuple(images.shape)}, labels {tuple(labels.shape)}"
        )
    if len(labels) == 0 or int(labels.max()) >= classes:
        raise DataError(f"{labels_path} holds no labels from 0 to {classes - 1}")
    return GreyPart(images, labels)


def read_idx(path: Path, axes: int) -> UInt8[Tensor, "..."]:
    """The bytes of an idx file as a tensor of ``axes`` axes.

    The format: two zero bytes, the element type (8 is unsigned byte), the number of axes, one
    big-endian size for each, then the elements. Raises ``DataError`` for anything else.
    """
    start = 4 + 4 * axes
    with opened(path) as file:
        header = file.read(start)
        if len(header) < start or header[:4] != bytes((0, 0, 8, axes)):
            raise DataError(f"{path} is not an idx file of unsigned bytes with {axes} axes")
        shape = struct.unpack(f">{axes}I", header[4:])
        expected = math.prod(shape)
        if expected > MOST_ELEMENTS:
            raise DataError(f"{path} should hold {expected:,} elements; at most {MOST_ELEMENTS:,}")
        content = read_most(file, expected)
    if len(content) != expected:
        count = f"{len(content)}" if len(content) < expected else "more"
        raise DataError(f"{path} should hold {expected} elements but holds {count}: get it again")
    return torch.from_numpy(np.frombuffer(content, np.uint8).copy()).reshape(shape)


def _examples(part: GreyPart, places: Sequence[int], levels: Levels, size: int) -> Examples:
    chosen = torch.tensor(list(places), dtype=torch.long)
    pixels = _scaled(part.images[chosen], levels, size)
    return Examples("pixel_values", pixels, part.labels[chosen])


def _scaled(
    images: UInt8[Tensor, "count height width"], levels: Levels, size: int
) -> Float[Tensor, "count 1 size size"]:
    values = ((images / 255 - levels.mean) / levels.deviation)[:, None]
    if size == SIDE or not len(values):
        return values.reshape(-1, 1, size, size)
    return F.interpolate(values, (size, size), mode="bilinear", antialias=True)
