"""Tiny ImageNet: 64 x 64 colour pictures of 200 classes, or of a subset of them.

Source: Le and Yang, 2015, Tiny ImageNet Visual Recognition Challenge; a part of ImageNet.
"""

from __future__ import annotations

from pathlib import Path

from sparing.core.errors import DataError, quoted
from sparing.tasks._archive import PICTURE_BYTES, files_in, find_archive
from sparing.tasks._arrays import read_arrays
from sparing.tasks._endings import files_with
from sparing.tasks._facts import Facts
from sparing.tasks._images import Part, Sizes, image_task
from sparing.tasks._subset import missing
from sparing.tasks.shared.files import data_folder
from sparing.tasks.shared.task import Task

FACTS = Facts(
    metrics=("accuracy", "top5"),
    licence="ImageNet's terms: research only",
    source="Tiny ImageNet (Le and Yang 2015), cs231n.stanford.edu/tiny-imagenet-200.zip",
    splits="the published validation set, as the test set has no labels",
    chance=1 / 200,
)
SIZE = 64
CLASSES, PUBLISHED = 200, {"train": 100_000, "test": 10_000}
WANTED = "the folder tiny-imagenet-200, or tiny-imagenet-200.zip as published,"
FILES = (
    r"(wnids\.txt|words\.txt|val/val_annotations\.txt|train/n\d+/n\d+_boxes\.txt|"
    r"(?:train/n\d+|val)/images/[^/]+\.JPEG)"
)


def load(
    *,
    data: Path | None = None,
    image_size: int = SIZE,
    patch_size: int = 8,
    examples: int | None = None,
    boxes: bool = False,
    seed: int = 0,
) -> Task:
    """200 classes, or fewer in a subset; the published validation set is the test split.

    Validation is cut from the training set. ``patch_size`` 8 gives 64 tokens and the class token.
    Data is in the published layout, in a folder, a zip or a tar, or in an npz file with x_train,
    y_train, x_val, y_val and class_names. It is in tiny-imagenet/ below the data folder or in it.
    wnids.txt lists the classes. With ``boxes`` examples locate the object in the picture; only the
    layout has them. Raises ``DataError`` for files that are missing or damaged.
    """
    folder = data_folder("tiny-imagenet", data, ("tiny-imagenet",), WANTED)
    arrays = files_with(folder, "tiny_imagenet", (".npz",))
    if arrays and not boxes and not any(folder.glob("tiny-imagenet-200*")):
        train, test, labels = read_arrays(arrays[0], ("x_train", "y_train", "x_val", "y_val"))
    else:
        train, test, labels = _from_layout(folder, boxes=boxes)
    notes = missing({"train": train.labels, "test": test.labels}, PUBLISHED)
    if len(labels) < CLASSES:
        notes = (f"subset: {len(labels)} of {CLASSES} classes", *notes)
    sizes = Sizes(image_size, patch_size, examples, seed)
    return image_task("tiny-imagenet", FACTS, labels, train, test, sizes, notes=notes)


def _from_layout(folder: Path, *, boxes: bool) -> tuple[Part, Part, tuple[str, ...]]:
    path = find_archive("tiny-imagenet", folder, ("tiny-imagenet-200",), WANTED)
    files = {match.group(1): content for match, content in files_in(path, FILES, PICTURE_BYTES)}
    wnids = _lines(path, files, "wnids.txt")
    if len(set(wnids)) < len(wnids):
        raise DataError(f"{path}: wnids.txt names a class twice")
    words = _pairs(path, files, "words.txt")
    labels = _distinct(wnids, [words.get(wnid, wnid).partition(",")[0] for wnid in wnids])
    numbers = {wnid: number for number, wnid in enumerate(wnids)}
    owners = _pairs(path, files, "val/val_annotations.txt")
    train: dict[str, tuple[bytes, int]] = {}
    test: dict[str, tuple[bytes, int]] = {}
    for name, content in files.items():
        if name.endswith(".txt"):
            continue
        part, file = name.split("/")[0], name.rpartition("/")[2]
        wnid = name.split("/")[1] if part == "train" else owners.get(file, "")
        if wnid not in numbers:
            raise DataError(f"{path}: {quoted(name)} has no class in wnids.txt")
        (train if part == "train" else test)[name] = (content, numbers[wnid])
    bare = set(range(len(wnids))) - {number for _, number in train.values()}
    if train and bare:
        raise DataError(f"{path} has no training pictures of {wnids[min(bare)]}")
    known = _boxes(path, files) if boxes else None
    return _part(path, train, known), _part(path, test, known), labels


def _pairs(path: Path, files: dict[str, bytes], name: str) -> dict[str, str]:
    """The second column of a file by the first."""
    pairs = {}
    for number, line in enumerate(_lines(path, files, name), 1):
        columns = line.split("\t")
        if len(columns) < 2:
            raise DataError(f"{path}: {name}, line {number}: {quoted(line)} has one column")
        pairs[columns[0]] = columns[1]
    return pairs


def _boxes(path: Path, files: dict[str, bytes]) -> dict[str, tuple[float, ...]]:
    """The box of every picture by its file's name: centre, width and height in shares.

    The files give the first and the last pixel, both inside, of pictures of 64 x 64.
    """
    boxes = {}
    for name in files:
        if not name.endswith(("_boxes.txt", "val_annotations.txt")):
            continue
        for number, line in enumerate(_lines(path, files, name), 1):
            file, *rest = line.split("\t")
            try:
                left, top, right, bottom = (int(text) for text in rest[-4:])
            except ValueError as error:
                raise DataError(
                    f"{path}: {name}, line {number} is not a box of four numbers"
                ) from error
            if not (0 <= left <= right < SIZE and 0 <= top <= bottom < SIZE):
                raise DataError(f"{path}: {name}, line {number}: the box is not in the picture")
            width, height = right + 1 - left, bottom + 1 - top
            sides = (left + width / 2, top + height / 2, width, height)
            boxes[file] = tuple(side / SIZE for side in sides)
    return boxes


def _distinct(wnids: list[str], names: list[str]) -> tuple[str, ...]:
    """Names of classes, with numbers where two are equal, as the two cranes (bird and machine)."""
    return tuple(
        f"{name} {wnid}" if names.count(name) > 1 else name
        for wnid, name in zip(wnids, names, strict=True)
    )


def _lines(path: Path, files: dict[str, bytes], name: str) -> list[str]:
    if name not in files:
        raise DataError(f"{path} holds no {name}: get it again")
    lines = files[name].decode("utf-8", "replace").replace("\r", "").split("\n")
    return [line for line in lines if line.strip()]


def _part(
    path: Path,
    pictures: dict[str, tuple[bytes, int]],
    boxes: dict[str, tuple[float, ...]] | None,
) -> Part:
    names = sorted(pictures)
    known = None
    if boxes is not None:
        files = [name.rpartition("/")[2] for name in names]
        missing = [file for file in files if file not in boxes]
        if missing:
            raise DataError(f"{path} has no box for {len(missing)} pictures, {missing[0]} for one")
        known = [boxes[file] for file in files]
    sources = [pictures[name][0] for name in names]
    return Part(sources, [pictures[name][1] for name in names], names, known)
