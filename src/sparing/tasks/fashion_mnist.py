"""Fashion-MNIST: 28 x 28 pictures of clothes, read from the published idx files."""

from __future__ import annotations

from pathlib import Path

from sparing.tasks._facts import Facts
from sparing.tasks._idx import FILES, SIDE, Levels, check_sizes, grey_task, read_part
from sparing.tasks._images import Sizes
from sparing.tasks.shared.files import data_folder
from sparing.tasks.shared.task import Task

FACTS = Facts(
    metrics=("accuracy", "top5"),
    licence="MIT",
    source="Fashion-MNIST (Xiao, Rasul, Vollgraf 2017), arXiv 1708.07747, "
    "github.com/zalandoresearch/fashion-mnist",
    splits="the published test set",
    chance=0.1,
)
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
LEVELS = Levels(0.2860, 0.3530)


def load(
    *, data: Path | None = None, patch_size: int = 4, examples: int | None = None, seed: int = 0
) -> Task:
    """Ten classes; the published test set, and validation cut from the published training set.

    One tenth of the training set, at most 5,000 images, is the validation split, with the classes
    in proportion. ``patch_size`` 4 gives 49 tokens and the class token, 2 gives 196. ``examples``
    limits the training images. The first 20,000 training images under the names train20k-* are
    accepted too.

    Source: Xiao, Rasul and Vollgraf, 2017, arXiv 1708.07747.
    """
    name, sizes = "fashion-mnist", Sizes(SIDE, patch_size, examples, seed)
    check_sizes(name, sizes)
    folder = data_folder(name, data, ("fashion-mnist", "FashionMNIST/raw"), FILES)
    train = read_part(name, folder, ("train", "train20k"), len(LABELS))
    test = read_part(name, folder, ("t10k",), len(LABELS))
    return grey_task(name, FACTS, LABELS, train, test, LEVELS, sizes)
