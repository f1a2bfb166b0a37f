"""Tiny ImageNet: 64 x 64 colour pictures of 200 classes, or of those that a subset keeps.

Source: Le and Yang, 2015, Tiny ImageNet Visual Recognition Challenge; a part of ImageNet.
"""

from __future__ import annotations

from pathlib import Path

from sparing.core.errors import DataError
from sparing.tasks._archive import files_in, find_archive
from sparing.tasks._facts import Facts
from sparing.tasks._files import data_folder
from sparing.tasks._images import Part, Sizes, image_task, read_arrays
from sparing.tasks._task import Task

FACTS = Facts(
    metrics=("accuracy", "top5"),
    licence="ImageNet's terms: research only",
    source="Tiny ImageNet (Le and Yang 2015), cs231n.stanford.edu/tiny-imagenet-200.zip",
    splits="the published validation set, as the test set has no labels",
    chance=1 / 200,
)
CLASSES, PUBLISHED = 200, {"train": 100_000, "test": 10_000}
WANTED = "the folder tiny-imagenet-200, or tiny-imagenet-200.zip as published,"
FILES = (
    r"(wnids\.txt|words\.txt|val/val_annotations\.txt|"
    r"(?:train/n\d+|val)/images/[^/]+\.JPEG)"
)


def load(
    *,
    data: Path | None = None,
    image_size: int = 64,
    patch_size: int = 8,
    examples: int | None = None,
    seed: int = 0,
) -> Task:
    """200 classes, or fewer in a subset; the published validation set is the test split.

    Validation is cut from the training set. ``patch_size`` 8 gives 64 tokens and the class token.
    Read from the published layout, in a folder, a zip or a tar, or from an npz file with x_train,
    y_train, x_val, y_val and class_names, in tiny-imagenet/ below the data folder or in it. Which
    classes there are, wnids.txt says. Raises ``DataError`` for what is missing or damaged.
    """
    folder = data_folder("tiny-imagenet", data, ("tiny-imagenet",), WANTED)
    arrays = sorted(folder.glob("tiny_imagenet*.npz"))
    if arrays and not any(folder.glob("tiny-imagenet-200*")):
        train, test, labels = read_arrays(arrays[0], ("x_train", "y_train", "x_val", "y_val"))
    else:
        train, test, labels = _from_layout(folder)
    notes = [f"subset: {len(labels)} of {CLASSES} classes"] if len(labels) < CLASSES else []
    notes += [
        f"subset: {split} holds {len(part.labels)} of {PUBLISHED[split]} published images"
        for split, part in (("train", train), ("test", test))
        if len(part.labels) < PUBLISHED[split]
    ]
    sizes = Sizes(image_size, patch_size, examples, seed)
    return image_task("tiny-imagenet", FACTS, labels, train, test, sizes, notes=tuple(notes))


def _from_layout(folder: Path) -> tuple[Part, Part, tuple[str, ...]]:
    place = find_archive("tiny-imagenet", folder, ("tiny-imagenet-200",), WANTED)
    found = {match.group(1): content for match, content in files_in(place, FILES)}
    wnids = _lines(place, found, "wnids.txt")
    words = dict(line.split("\t", 1) for line in _lines(place, found, "words.txt"))
    labels = _distinct(wnids, [words.get(wnid, wnid).partition(",")[0] for wnid in wnids])
    numbers = {wnid: number for number, wnid in enumerate(wnids)}
    owners = dict(line.split("\t")[:2] for line in _lines(place, found, "val/val_annotations.txt"))
    train: dict[str, tuple[bytes, int]] = {}
    test: dict[str, tuple[bytes, int]] = {}
    for name, content in found.items():
        if name.endswith(".txt"):
            continue
        part, file = name.split("/")[0], name.rpartition("/")[2]
        wnid = name.split("/")[1] if part == "train" else owners.get(file, "")
        if wnid not in numbers:
            raise DataError(f"{place}: {name} is of no class in wnids.txt")
        (train if part == "train" else test)[name] = (content, numbers[wnid])
    return _part(train), _part(test), labels


def _distinct(wnids: list[str], names: list[str]) -> tuple[str, ...]:
    """Names of classes; two cranes, the bird and the machine, are told apart by their numbers."""
    return tuple(
        f"{name} {wnid}" if names.count(name) > 1 else name
        for wnid, name in zip(wnids, names, strict=True)
    )


def _lines(place: Path, found: dict[str, bytes], name: str) -> list[str]:
    if name not in found:
        raise DataError(f"{place} holds no {name}: get it again")
    lines = found[name].decode("utf-8", "replace").replace("\r", "").split("\n")
    return [line for line in lines if line.strip()]


def _part(pictures: dict[str, tuple[bytes, int]]) -> Part:
    names = sorted(pictures)
    return Part([pictures[name][0] for name in names], [pictures[name][1] for name in names], names)
