"""CIFAR-10: 32 x 32 colour pictures of ten classes.

Source: Krizhevsky, 2009, Learning Multiple Layers of Features from Tiny Images.
"""

from __future__ import annotations

from pathlib import Path

from sparing.tasks._archive import files_in, find_archive
from sparing.tasks._arrays import read_arrays
from sparing.tasks._cifar import BATCH_BYTES, SIZE, from_rows, from_the_hub
from sparing.tasks._endings import files_with
from sparing.tasks._facts import Facts
from sparing.tasks._images import Part, Sizes, image_task
from sparing.tasks._pixels import sequence_task
from sparing.tasks._subset import missing
from sparing.tasks.shared.files import data_folder, given_folder
from sparing.tasks.shared.task import Task

FACTS = Facts(
    metrics=("accuracy", "top5"),
    licence="none stated; cite Krizhevsky 2009",
    source="CIFAR-10 (Krizhevsky 2009), www.cs.toronto.edu/~kriz/cifar.html",
    splits="the published test set",
    chance=0.1,
)
LABELS = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)
PUBLISHED = {"train": 50000, "test": 10000}
WANTED = "the binary version, the folder cifar-10-batches-bin or cifar-10-binary.tar.gz,"


def load(
    *,
    data: Path | None = None,
    image_size: int = SIZE,
    patch_size: int = 4,
    as_tokens: bool = False,
    examples: int | None = None,
    seed: int = 0,
) -> Task:
    """Ten classes; the published test set, and validation cut from the published training set.

    With ``as_tokens`` an image is a sequence of 1,024 grey levels behind a class token, read pixel
    by pixel. That is the task Image of the Long Range Arena (Tay et al., 2020, arXiv 2011.04006).

    ``patch_size`` 4 gives 64 tokens and the class token. The binary version is read, in a folder or
    its archive, or an npz file with x_train, y_train, x_test, y_test and class_names. It is in
    cifar10/ below the data folder or in it; without a data folder it comes from the hub. The
    version for Python holds pickles, which can run any code when opened, and is not read.
    """
    if given_folder(data) is None:
        train, test, labels = _from_hub()
    else:
        folder = data_folder("cifar10", data, ("cifar10", "cifar-10"), WANTED)
        arrays = files_with(folder, "cifar10", (".npz",))
        if arrays and not any(folder.glob("cifar-10-b*")):
            train, test, labels = read_arrays(arrays[0], ("x_train", "y_train", "x_test", "y_test"))
        else:
            train, test, labels = _from_binary(folder)
    notes = missing({"train": train.labels, "test": test.labels}, PUBLISHED)
    sizes = Sizes(image_size, patch_size, examples, seed)
    if as_tokens:
        return sequence_task("cifar10", FACTS, labels, train, test, sizes, notes)
    return image_task("cifar10", FACTS, labels, train, test, sizes, notes=notes)


def _from_binary(folder: Path) -> tuple[Part, Part, tuple[str, ...]]:
    path = find_archive("cifar10", folder, ("cifar-10-batches-bin", "cifar-10-binary"), WANTED)
    batches = {
        match.group(1): content
        for match, content in files_in(path, r"((?:data|test)_batch(?:_[1-5])?)\.bin", BATCH_BYTES)
    }
    train = b"".join(batches[name] for name in sorted(batches) if name.startswith("data"))
    parts = [
        from_rows(path, content, name="CIFAR-10", labels=1, classes=len(LABELS))
        for content in (train, batches.get("test_batch", b""))
    ]
    return parts[0], parts[1], LABELS


def _from_hub() -> tuple[Part, Part, tuple[str, ...]]:
    _, (train, test) = from_the_hub("cifar10", "uoft-cs/cifar10", "label", WANTED, 10)
    return train, test, LABELS
