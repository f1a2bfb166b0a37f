"""Your own pictures in ImageNet's layout: a folder for each class in train and in val."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from sparing.core.errors import DataError, UsageError, nearest
from sparing.core.paths import expanded
from sparing.tasks._facts import Facts
from sparing.tasks._images import Part, Sizes, image_task
from sparing.tasks._task import Task

FACTS = Facts(
    metrics=("accuracy", "top5"),
    licence="your own",
    source="your own folder",
    splits="test, else val; what is missing is cut from train",
)
ENDINGS = {".jpg", ".jpeg", ".png", ".bmp", ".gif", ".ppm", ".tif", ".tiff", ".webp"}


def load(
    *,
    data: Path | None = None,
    source: str = "",
    image_size: int = 64,
    patch_size: int = 8,
    examples: int | None = None,
    seed: int = 0,
) -> Task:
    """A task of the pictures in SOURCE/train/CLASS/ and SOURCE/val/CLASS/, judged by top-1 and 5.

    With both val and test, val is the validation split; with one of them, it is the test split and
    validation is cut from train. Without ``source`` the data folder itself has this layout. The
    shorter side is scaled to ``image_size`` and the middle kept; for a pretrained vision
    transformer give its own (224 and ``patch_size`` 16). More than 1 GiB of pixels is read picture
    by picture. Files that are no pictures by their names are refused, and pictures in no class's
    folder; but a whole test split without labels, as ImageNet's, is left out. Raises ``DataError``
    naming what is missing or cannot be read.
    """
    root = expanded(source) if source or data is None else Path(data)
    if not source and data is None:
        raise UsageError("image-folder: give source, the folder that holds train and val")
    if not root.is_dir() and data is not None:
        root = Path(data) / source
    if not (root / "train").is_dir():
        raise DataError(f"task image-folder: {root} has no folder train")
    held_out, notes = _held_out(root)
    labels = tuple(sorted(entry.name for entry in _folders(root / "train")))
    if len(labels) < 2:
        named = f"only {labels[0]}" if labels else "no folder of a class"
        raise DataError(f"task image-folder: {root / 'train'} holds {named}; two classes and more")
    train, test = _part(root / "train", labels), _part(root / held_out[0], labels)
    bare = [label for number, label in enumerate(labels) if number not in train.labels]
    if bare:
        raise DataError(f"task image-folder: {root / 'train' / bare[0]} holds no picture")
    validation = _part(root / held_out[1], labels) if len(held_out) > 1 else None
    sizes = Sizes(image_size, patch_size, examples, seed)
    facts = replace(FACTS, source=str(root))
    task = image_task(root.resolve().name, facts, labels, train, test, sizes, validation)
    return replace(task, notes=(*task.notes, *notes))


def _held_out(root: Path) -> tuple[list[str], tuple[str, ...]]:
    """The folders of the test split and, where there is one, of validation; and a note."""
    found = [split for split in ("test", "val", "validation") if (root / split).is_dir()]
    if not found:
        raise DataError(f"task image-folder: {root} has no folder val or test")
    if "test" not in found or len(found) == 1 or _folders(root / "test"):
        return found, ()
    found.remove("test")  # as ImageNet is published
    return found, ("test: its pictures stand in no class's folder, so val is tested on",)


def _folders(place: Path) -> list[Path]:
    return [entry for entry in place.iterdir() if entry.is_dir() and entry.name[0] != "."]


def _part(place: Path, labels: tuple[str, ...]) -> Part:
    """The pictures of one split; every class must be one of the training split's."""
    found: list[tuple[str, Path, int]] = []
    loose = [each.name for each in place.iterdir() if each.suffix.lower() in ENDINGS]
    if loose:
        raise DataError(f"{place / min(loose)} stands in no class's folder")
    for folder in sorted(_folders(place)):
        if folder.name not in labels:
            raise DataError(f"{folder} is no class of train{nearest(folder.name, labels)}")
        for path in sorted(folder.rglob("*")):
            if path.name.startswith(".") or path.is_dir():
                continue
            if path.suffix.lower() not in ENDINGS:
                raise DataError(f"{path} is no picture by its name")
            found.append((path.relative_to(place).as_posix(), path, labels.index(folder.name)))
    return Part(
        [path for _, path, _ in found],
        [label for *_, label in found],
        [key for key, *_ in found],
    )
