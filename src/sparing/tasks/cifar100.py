"""CIFAR-100: 32 x 32 colour pictures of a hundred classes.

Source: Krizhevsky, 2009, Learning Multiple Layers of Features from Tiny Images.
"""

from __future__ import annotations

from pathlib import Path

from sparing.core.errors import DataError
from sparing.tasks._archive import files_in, find_archive
from sparing.tasks._cifar import BATCH_BYTES, SIZE, from_rows, from_the_hub
from sparing.tasks._facts import Facts
from sparing.tasks._images import Part, Sizes, image_task
from sparing.tasks._subset import missing
from sparing.tasks.shared.files import data_folder, given_folder
from sparing.tasks.shared.task import Task

FACTS = Facts(
    metrics=("accuracy", "top5"),
    licence="none stated; cite Krizhevsky 2009",
    source="CIFAR-100 (Krizhevsky 2009), www.cs.toronto.edu/~kriz/cifar.html",
    splits="the published test set",
    chance=0.01,
)
CLASSES = 100
PUBLISHED = {"train": 50000, "test": 10000}
WANTED = "the binary version, the folder cifar-100-binary or cifar-100-binary.tar.gz,"
NAMES = "fine_label_names"


def load(
    *,
    data: Path | None = None,
    image_size: int = SIZE,
    patch_size: int = 4,
    examples: int | None = None,
    seed: int = 0,
) -> Task:
    """A hundred fine classes; the published test set, and validation cut from the training set.

    ``patch_size`` 4 gives 64 tokens and the class token. The binary version is read, in a folder or
    its archive, in cifar100/ below the data folder or in it; without a data folder it comes from
    the hub. The version for Python holds pickles and is not read.
    """
    train, test, labels = _from_hub() if given_folder(data) is None else _from_binary(data)
    notes = missing({"train": train.labels, "test": test.labels}, PUBLISHED)
    sizes = Sizes(image_size, patch_size, examples, seed)
    return image_task("cifar100", FACTS, labels, train, test, sizes, notes=notes)


def _from_binary(data: Path | None) -> tuple[Part, Part, tuple[str, ...]]:
    folder = data_folder("cifar100", data, ("cifar100", "cifar-100"), WANTED)
    path = find_archive("cifar100", folder, ("cifar-100-binary",), WANTED)
    pattern = rf"(train\.bin|test\.bin|{NAMES}\.txt)"
    files = {match.group(1): content for match, content in files_in(path, pattern, BATCH_BYTES)}
    names = tuple(files.get(f"{NAMES}.txt", b"").decode("utf-8", "replace").split())
    if len(set(names)) != CLASSES:
        raise DataError(f"{path}: {NAMES}.txt names {len(set(names))} classes, not {CLASSES}")
    parts = [
        from_rows(path, files.get(name, b""), name="CIFAR-100", labels=2, classes=CLASSES)
        for name in ("train.bin", "test.bin")
    ]
    return parts[0], parts[1], names


def _from_hub() -> tuple[Part, Part, tuple[str, ...]]:
    hub, (train, test) = from_the_hub("cifar100", "uoft-cs/cifar100", "fine_label", WANTED, CLASSES)
    names = getattr(hub["train"].features["fine_label"], "names", ())
    if len(names) != CLASSES:
        raise DataError(f"task cifar100: the hub names {len(names)} classes, not {CLASSES}")
    return train, test, tuple(names)
