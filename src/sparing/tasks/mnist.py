"""MNIST: 28 x 28 pictures of handwritten digits, read from the published idx files.

Source: LeCun, Bottou, Bengio and Haffner, 1998, Gradient-Based Learning Applied to Document
Recognition, doi 10.1109/5.726791.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from sparing.core.errors import DataError
from sparing.tasks._facts import Facts
from sparing.tasks._idx import FILES, SIDE, GreyPart, Levels, check_sizes, grey_task, read_part
from sparing.tasks._images import Sizes
from sparing.tasks.shared.files import data_folder, given_folder
from sparing.tasks.shared.hub import class_numbers, columns_of, from_hub, pictures_of
from sparing.tasks.shared.task import Task

FACTS = Facts(
    metrics=("accuracy", "top5"),
    licence="CC BY-SA 3.0",
    source="MNIST (LeCun, Bottou, Bengio, Haffner 1998), doi 10.1109/5.726791",
    splits="the published test set",
    chance=0.1135,
)
LABELS = tuple(str(digit) for digit in range(10))
LEVELS = Levels(0.1307, 0.3081)


def load(
    *,
    data: Path | None = None,
    image_size: int = SIDE,
    patch_size: int = 4,
    examples: int | None = None,
    seed: int = 0,
) -> Task:
    """Ten classes; the published test set, and validation cut from the published training set.

    One tenth of the training set, at most 5,000 images, is the validation split, with the classes
    in proportion. ``patch_size`` 4 gives 49 tokens and the class token, 2 gives 196; another
    ``image_size`` scales the pictures. ``examples`` limits the training images. The idx files,
    packed or not, are in mnist/ below the data folder or in it; without a data folder they come
    from the hub. Raises ``DataError`` for files that are missing, cut short or broken.
    """
    name, sizes = "mnist", Sizes(image_size, patch_size, examples, seed)
    check_sizes(name, sizes)
    if given_folder(data) is None:
        train, test = _from_hub()
    else:
        folder = data_folder(name, data, ("mnist", "MNIST/raw"), FILES)
        train = read_part(name, folder, ("train",), len(LABELS))
        test = read_part(name, folder, ("t10k",), len(LABELS))
    return grey_task(name, FACTS, LABELS, train, test, LEVELS, sizes)


def _from_hub() -> tuple[GreyPart, GreyPart]:
    instead = f"give --data or set SPARING_DATA, and put {FILES} into its mnist/"
    hub: Any = from_hub("mnist", "ylecun/mnist", instead=instead)
    return _part(hub, "train"), _part(hub, "test")


def _part(hub: Any, split: str) -> GreyPart:
    pixels = [picture[0] for picture in pictures_of("mnist", hub, split, "image")]
    if any(grey.shape != (SIDE, SIDE) for grey in pixels) or not pixels:
        raise DataError(f"task mnist: the hub's split {split} holds no pictures of {SIDE} x {SIDE}")
    where, (numbers,) = (
        f"task mnist: the hub's {split}",
        columns_of("mnist", hub, split, ("label",)),
    )
    labels = torch.tensor(class_numbers(where, numbers, len(LABELS)), dtype=torch.long)
    return GreyPart(torch.stack(pixels), labels)
