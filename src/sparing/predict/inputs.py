"""The rows of many files, in order: by path, glob or folder."""

from __future__ import annotations

import glob
import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sparing.core.errors import DataError, UsageError, nearest
from sparing.core.paths import expanded
from sparing.core.reading import open_plain
from sparing.predict.options import Options
from sparing.tasks.shared.files import is_packed
from sparing.tasks.texts.naming import named_columns
from sparing.tasks.texts.streams import (
    TABLES,
    Chosen,
    Cursor,
    RowFile,
    StreamedRow,
    open_rows,
)

ENDS = 2**16  # bytes at each end of a file that show whether it is still the same
SHOWN_ENDINGS = "parquet, jsonl, csv, tsv, txt"


@dataclass(frozen=True)
class NumberedRow:
    """A row with its file and its number in it, from 0."""

    file: str
    row: int
    content: StreamedRow


@dataclass(frozen=True)
class Inputs:
    """Files of rows and the columns that are used of all of them."""

    files: tuple[RowFile, ...]
    chosen: Chosen
    types: tuple[Any, ...] = ()

    def facts(self) -> list[dict[str, Any]]:
        """Name, size and digest of each file."""
        return [
            {"file": str(file.path), "size": file.size, "digest": _digest_of_ends(file.path)}
            for file in self.files
        ]

    def most_rows(self) -> int:
        """No more rows than these: where they are not known, a row has a byte or more."""
        times = 1000  # what gzip saves at most
        packed = (file.size * (times if is_packed(file.path) else 1) for file in self.files)
        known = (file.count for file in self.files)
        return sum(
            most if count is None else count for count, most in zip(known, packed, strict=True)
        )

    def counts(self) -> dict[str, int]:
        """The rows of the files that say how many they have."""
        return {str(file.path): file.count for file in self.files if file.count is not None}


def open_inputs(texts: str | Path | Sequence[str | Path], options: Options) -> Inputs:
    """Open all files, and choose the columns by the first one with rows.

    Raises ``DataError`` for files that are missing, damaged or without these columns, and
    ``UsageError`` for columns of different types.
    """
    named = named_columns(options.columns or None, None)
    how: dict[str, Any] = {"encoding": options.encoding, "header": options.header}
    files = tuple(open_rows(path, named, **how) for path in files_of(texts))
    filled = next((file for file in files if file.count != 0), None)
    if filled is None:
        raise DataError(
            f"{files[0].path} holds no texts{', nor do the others' if files[1:] else ''}"
        )
    chosen = filled.choose(named, options.keep)
    for file in files:
        file.require(chosen)
    return Inputs(files, chosen, _types(files, chosen))


def files_of(texts: str | Path | Sequence[str | Path]) -> list[Path]:
    """The files of paths, globs and folders; sorted within each of these.

    Of a folder these are its own files with a known ending. Raises ``DataError`` where there are
    none, and ``UsageError`` for a file that is given twice.
    """
    given = [texts] if isinstance(texts, str | Path) else list(texts)
    if not given:
        raise UsageError("no texts are given")
    paths = [path for one in given for path in _matching(str(one))]
    if len(set(paths)) < len(paths):
        twice = next(path for path in paths if paths.count(path) > 1)
        raise UsageError(f"{twice} is given twice")
    return paths


def _matching(given: str) -> list[Path]:
    path = expanded(given)
    if path.is_dir():
        inside = sorted(one for one in path.iterdir() if _is_texts(one))
        if not inside:
            raise DataError(f"the folder {given} holds no files of texts ({SHOWN_ENDINGS})")
        return inside
    if path.exists():
        return [path]
    if not glob.has_magic(given):
        beside = [one.name for one in path.parent.iterdir()] if path.parent.is_dir() else []
        raise DataError(f"there is no file {given}{nearest(path.name, beside)}")
    matching = sorted(map(Path, glob.glob(str(path), recursive=True)))
    files = [one for one in matching if not one.is_dir()]
    if not files:
        folders = f", only the folder {matching[0]}" if matching else ""
        raise DataError(f"no file matches {given}{folders}")
    return files


def _is_texts(path: Path) -> bool:
    return path.is_file() and not path.name.startswith(".") and path.name.lower().endswith(TABLES)


def _types(files: Sequence[RowFile], chosen: Chosen) -> tuple[Any, ...]:
    """The arrow types of the copied columns. They are the same in all files."""
    types: list[Any] | None = None
    for file in files:
        if file.count == 0:
            continue
        here = file.types(chosen.more)
        types = here if types is None else types
        for name, one, other in zip(chosen.more, types, here, strict=True):
            if one != other:
                raise UsageError(
                    f"{file.path}: the column {name} is {other}, in files before it {one}: "
                    "it cannot be copied from both"
                )
    return tuple(types or ())


def _digest_of_ends(path: Path) -> str:
    with open_plain(path) as file:
        start = file.read(ENDS)
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - ENDS))
        return hashlib.sha256(start + file.read(ENDS)).hexdigest()[:16]


@dataclass
class Reader:
    """The rows of all files, one after another.

    ``counts`` are the rows of files by name, as far as they are known: such a file is passed over
    unread. ``on_end`` receives the name and the rows of a file at its end.
    """

    inputs: Inputs
    counts: Mapping[str, int] = field(default_factory=dict)
    on_end: Callable[[str, int], None] = lambda file, rows: None

    def __post_init__(self) -> None:
        self._sizes = [file.size for file in self.inputs.files]
        self._number = self._row = 0
        self._cursor: Cursor | None = None

    @property
    def share(self) -> float:
        """How much of the bytes of all files has been read."""
        if self._number >= len(self._sizes):
            return 1.0
        inside = self._cursor.share * self._sizes[self._number] if self._cursor else 0
        return (sum(self._sizes[: self._number]) + inside) / max(1, sum(self._sizes))

    def take(self, count: int) -> list[NumberedRow]:
        """The next rows: fewer than ``count`` only at the end of all files."""
        rows: list[NumberedRow] = []
        while len(rows) < count and self._number < len(self._sizes):
            name = str(self.inputs.files[self._number].path)
            some = self._opened().take(count - len(rows))
            rows += [NumberedRow(name, self._row + n, row) for n, row in enumerate(some)]
            self._passed(len(some), ended=len(rows) < count)
        return rows

    def skip(self, count: int) -> int:
        """Pass over rows; how many there were."""
        passed = 0
        while passed < count and self._number < len(self._sizes):
            known = self.counts.get(str(self.inputs.files[self._number].path))
            if self._cursor is None and known is not None and known <= count - passed:
                step, ended = known, True
            else:
                step = self._opened().skip(count - passed)
                ended = step < count - passed
            passed += step
            self._passed(step, ended)
        return passed

    def _opened(self) -> Cursor:
        if self._cursor is None:
            self._cursor = self.inputs.files[self._number].cursor(self.inputs.chosen)
        return self._cursor

    def _passed(self, count: int, ended: bool) -> None:
        self._row += count
        if ended:
            self.on_end(str(self.inputs.files[self._number].path), self._row)
            self._number, self._row, self._cursor = self._number + 1, 0, None
