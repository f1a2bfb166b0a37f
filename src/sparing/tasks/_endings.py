"""The file name endings of rows and of pictures, in lower case."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

PLAIN_TABLES = (".csv", ".tsv", ".txt")
LINES = (".jsonl", ".json")
TABLES = (
    *PLAIN_TABLES,
    *(f"{ending}.gz" for ending in PLAIN_TABLES),
    *LINES,
    *(f"{ending}.gz" for ending in LINES),
    ".parquet",
)
CONLL_PLAIN = (".conll", ".bio", ".iob", ".iob2")
CONLL = (*CONLL_PLAIN, *(f"{ending}.gz" for ending in CONLL_PLAIN))
PICTURES = (
    ".jpg",
    ".jpeg",
    ".jfif",
    ".png",
    ".bmp",
    ".gif",
    ".ppm",
    ".tif",
    ".tiff",
    ".webp",
    ".avif",
)


def ends_with(name: str | Path, endings: Sequence[str]) -> bool:
    """Whether a file's name has one of these endings, in any case."""
    return str(name).lower().endswith(tuple(endings))


def files_with(folder: Path, stem: str, endings: Sequence[str]) -> list[Path]:
    """The files in a folder that begin with ``stem`` and have one of the endings, sorted."""
    return sorted(
        path
        for path in folder.iterdir()
        if path.name.startswith(stem) and ends_with(path.name, endings) and path.is_file()
    )


def holds_classes(folder: Path) -> bool:
    """Whether a folder contains folders of pictures, one for each class."""
    return any(
        ends_with(inside.name, PICTURES)
        for entry in folder.iterdir()
        if entry.is_dir() and not entry.name.startswith(".")
        for inside in entry.iterdir()
    )
