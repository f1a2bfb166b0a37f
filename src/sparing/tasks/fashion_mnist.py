"""Fashion-MNIST: 28 x 28 pictures of clothes, read from the published idx files."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from sparing.core.errors import DataError, UsageError
from sparing.tasks._facts import Facts
from sparing.tasks._files import data_folder, find, read_bytes
from sparing.tasks._splits import stratified
from sparing.tasks._task import Examples, Task

FACTS = Facts(
    metrics=("accuracy", "top5"),
    licence="MIT",
    source="Fashion-MNIST (Xiao, Rasul, Vollgraf 2017), arXiv 1708.07747, "
    "github.com/zalandoresearch/fashion-mnist",
    splits="the published test set",
    chance=0.1,
)
SIZE = 28
LABELS = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
# The mean and deviation of all training pixels between 0 and 1.
MEAN, DEVIATION = 0.2860, 0.3530
FILES = "train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and "
FILES += "t10k-labels-idx1-ubyte (.gz as published)"


def load(
    *, data: Path | None = None, patch_size: int = 4, examples: int | None = None, seed: int = 0
) -> Task:
    """Ten classes; the published test set, and validation cut from the published training set.

    One tenth of the training set, at most 5,000 images, is the validation split, with the classes
    in proportion. ``patch_size`` 4 gives 49 tokens and the class token, 2 gives 196. ``examples``
    keeps only so many training images. The first 20,000 training images under the names
    train20k-* serve too.

    Source: Xiao, Rasul and Vollgraf, 2017, arXiv 1708.07747.
    """
    if patch_size < 1 or SIZE % patch_size:
        raise UsageError(f"fashion-mnist: patch_size must divide {SIZE}, got {patch_size!r}")
    name = "fashion-mnist"
    folder = data_folder(name, data, ("fashion-mnist", "FashionMNIST/raw"), FILES)
    train = _read(name, folder, ("train", "train20k"))
    test = _read(name, folder, ("t10k",))
    held_out = min(5000, len(train) // 10)
    kept = len(train) - held_out if examples is None else examples
    keys = [str(index) for index in range(len(train))]
    validation, fitting = stratified(train.labels.tolist(), keys, (held_out, kept), seed)
    return Task(
        name=name,
        kind="image",
        train=train.subset(fitting),
        validation=train.subset(validation),
        test=test,
        labels=LABELS,
        tokens=(SIZE // patch_size) ** 2 + 1,
        licence=FACTS.licence,
        source=FACTS.source,
        metrics=FACTS.metrics,
        image_size=SIZE,
        channels=1,
        patch_size=patch_size,
        pixel_mean=MEAN,
        pixel_deviation=DEVIATION,
    )


def read_idx(path: Path, axes: int) -> UInt8[Tensor, "..."]:
    """The bytes of an idx file as a tensor of so many axes.

    The format: two zero bytes, the element type (8 is unsigned byte), the number of axes, one
    big-endian size for each, then the elements. Raises ``DataError`` for anything else.
    """
    content = read_bytes(path)
    start = 4 + 4 * axes
    if len(content) < start or content[:4] != bytes((0, 0, 8, axes)):
        raise DataError(f"{path} is not an idx file of unsigned bytes with {axes} axes")
    shape = struct.unpack(f">{axes}I", content[4:start])
    wanted, found = int(np.prod(shape, dtype=np.int64)), len(content) - start
    if wanted != found:
        raise DataError(f"{path} should hold {wanted} elements but holds {found}: get it again")
    return torch.from_numpy(np.frombuffer(content, np.uint8, offset=start).copy()).reshape(shape)


def _read(name: str, folder: Path, stems: tuple[str, ...]) -> Examples:
    """Images and labels of one part; both must come from the same stem."""
    path = find(name, folder, [f"{stem}-images-idx3-ubyte" for stem in stems])
    stem = path.name.partition("-")[0]
    images = read_idx(path, 3)
    labels_path = find(name, folder, [f"{stem}-labels-idx1-ubyte"])
    labels = read_idx(labels_path, 1).long()
    if len(images) != len(labels) or images.shape[1:] != (SIZE, SIZE):
        raise DataError(
            f"{path} and {labels_path.name} do not belong together: images "
            f"{tuple(images.shape)}, labels {tuple(labels.shape)}"
        )
    if len(labels) == 0 or int(labels.max()) >= len(LABELS):
        raise DataError(f"{labels_path} holds no labels from 0 to {len(LABELS) - 1}")
    return Examples("pixel_values", _scaled(images), labels)


def _scaled(images: UInt8[Tensor, "count height width"]) -> Float[Tensor, "count 1 height width"]:
    return ((images / 255 - MEAN) / DEVIATION)[:, None]
