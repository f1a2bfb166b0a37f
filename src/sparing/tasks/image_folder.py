"""Your own pictures: a folder for each class, in train and in val or in one folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from sparing.core.errors import DataError, UsageError, listed, nearest
from sparing.core.paths import expanded
from sparing.tasks._endings import PICTURES, ends_with, holds_classes
from sparing.tasks._facts import Facts
from sparing.tasks._images import Part, Sizes, cut_test, image_task
from sparing.tasks.shared.task import Task

FACTS = Facts(
    metrics=("accuracy", "top5"),
    licence="your own",
    source="your own folder",
    splits="test, else val; what is missing is cut from train",
)


def load(
    *,
    data: Path | None = None,
    source: str = "",
    image_size: int = 64,
    patch_size: int = 8,
    examples: int | None = None,
    seed: int = 0,
) -> Task:
    """A task of the pictures in SOURCE/train/CLASS/ and SOURCE/val/CLASS/, scored by top-1 and 5.

    Of pictures in SOURCE/CLASS/ a fifth, chosen by the seed, is cut to test on; ``source_note`` of
    the task says so. With both val and test, val is the validation split. With one of them, it is
    the test split and validation is cut from train. Without ``source`` the data folder itself has
    this layout. The shorter side is scaled to ``image_size`` and the middle kept; for a pretrained
    vision transformer give its own size (224 and ``patch_size`` 16). More than 1 GiB of pixels is
    read picture by picture. Files that are not pictures by name are refused, as are pictures
    outside a class's folder. A whole test split without labels, as ImageNet's, is left out. Raises
    ``DataError`` naming what is missing or cannot be read.
    """
    root = expanded(source) if source or data is None else Path(data)
    if not source and data is None:
        raise UsageError("image-folder: give source, the folder that holds train and val")
    if not root.is_dir() and data is not None:
        root = Path(data) / source
    if not root.is_dir() or not ((root / "train").is_dir() or holds_classes(root)):
        raise DataError(
            f"task image-folder: {root} has no folder train, and no folders of pictures"
        )
    sizes = Sizes(image_size, patch_size, examples, seed)
    return (_in_splits if (root / "train").is_dir() else _flat)(root, sizes)


def _flat(root: Path, sizes: Sizes) -> Task:
    labels = _labels(root)
    train, test = cut_test(_part(root, labels), sizes.seed)
    count = len(train.labels) + len(test.labels)
    taken = f"test: a fifth, {len(test.labels)} of {count} pictures"
    return _task(root, labels, (train, test, None), sizes, taken)


def _in_splits(root: Path, sizes: Sizes) -> Task:
    held_out, notes = _held_out(root)
    labels = _labels(root / "train")
    train, test = _part(root / "train", labels), _part(root / held_out[0], labels)
    validation = _part(root / held_out[1], labels) if len(held_out) > 1 else None
    taken = f"test: {held_out[0]}" + (f"; validation: {held_out[1]}" if validation else "")
    return _task(root, labels, (train, test, validation), sizes, taken, notes)


def _task(
    root: Path,
    labels: tuple[str, ...],
    parts: tuple[Part, Part, Part | None],
    sizes: Sizes,
    taken: str,
    notes: tuple[str, ...] = (),
) -> Task:
    train, test, validation = parts
    facts, name = replace(FACTS, source=str(root)), root.resolve().name
    task = image_task(name, facts, labels, train, test, sizes, validation)
    taken = f"classes: {listed(labels, 8)}; {taken}"
    return replace(task, notes=(*task.notes, *notes), source_note=taken)


def _labels(root: Path) -> tuple[str, ...]:
    """The classes: folders that hold a picture, two at least."""
    labels = tuple(sorted(entry.name for entry in _folders(root)))
    if len(labels) < 2:
        named = f"only {labels[0]}" if labels else "no folder of a class"
        raise DataError(f"task image-folder: {root} holds {named}; it needs two classes or more")
    for label in labels:
        if not any(ends_with(path.name, PICTURES) for path in (root / label).rglob("*")):
            raise DataError(f"task image-folder: {root / label} holds no picture")
    return labels


def _held_out(root: Path) -> tuple[list[str], tuple[str, ...]]:
    """The folders of the test split and, where there is one, of validation; and a note."""
    splits = [split for split in ("test", "val", "validation") if (root / split).is_dir()]
    if not splits:
        raise DataError(f"task image-folder: {root} has no folder val or test")
    if "test" not in splits or len(splits) == 1 or _folders(root / "test"):
        return splits, ()
    splits.remove("test")  # as ImageNet is published
    return splits, ("test: its pictures are in no class's folder, so val is the test split",)


def _folders(folder: Path) -> list[Path]:
    return [entry for entry in folder.iterdir() if entry.is_dir() and entry.name[0] != "."]


def _part(split_folder: Path, labels: tuple[str, ...]) -> Part:
    """The pictures of one split; every class must be one of the training split's."""
    pictures: list[tuple[str, Path, int]] = []
    loose = [entry.name for entry in split_folder.iterdir() if ends_with(entry.name, PICTURES)]
    if loose:
        raise DataError(f"{split_folder / min(loose)} is in no class's folder")
    for folder in sorted(_folders(split_folder)):
        if folder.name not in labels:
            raise DataError(f"{folder} is not a class of train{nearest(folder.name, labels)}")
        for path in sorted(folder.rglob("*")):
            if path.name.startswith(".") or path.is_dir():
                continue
            if not ends_with(path.name, PICTURES):
                raise DataError(f"{path} is not a picture by its name")
            pictures.append(
                (path.relative_to(split_folder).as_posix(), path, labels.index(folder.name))
            )
    return Part(
        [path for _, path, _ in pictures],
        [label for *_, label in pictures],
        [key for key, *_ in pictures],
    )
