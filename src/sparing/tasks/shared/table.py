"""Tables of texts and labels: GLUE's tsv files, and the user's own tsv or csv."""

from __future__ import annotations

import csv
import io
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from sparing.core.errors import DataError, nearest, option, quoted
from sparing.tasks.shared.files import read_bytes

SHOWN_LINES, NOTED_LINES = 5, 100
UTF_8 = "utf-8-sig"
Answer = Callable[[str], int | float | None]


class Row(NamedTuple):
    """One example: one text or a pair, and its class number or value.

    Where several labels may hold, ``flags`` have a 1 for each that does, else a 0.
    """

    texts: tuple[str, ...]
    label: int | float = 0
    flags: tuple[int, ...] = ()


@dataclass(frozen=True)
class Table:
    """The format of a file's lines.

    ``texts`` and ``label`` are names of columns. ``names`` are those of all columns where the first
    line does not give them, ``widths`` the numbers of columns that a line may then have.
    ``separator`` is a tab with quotes read literally, a space that ends the first column, or a
    comma with quotes as in csv.
    """

    texts: tuple[str, ...]
    label: str
    names: tuple[str, ...] = ()
    widths: tuple[int, ...] = ()
    separator: str = "\t"
    encoding: str = UTF_8


def classes(names: tuple[str, ...]) -> Answer:
    """Class numbers of labels that are written as one of ``names``."""
    numbers = {name: number for number, name in enumerate(names)}
    return numbers.get


def number_between(low: float, high: float) -> Answer:
    """Values of labels that are written as a number from ``low`` to ``high``."""

    def read(text: str) -> float | None:
        try:
            value = float(text)
        except ValueError:
            return None
        return value if math.isfinite(value) and low <= value <= high else None

    return read


def text_of(path: Path, encoding: str = UTF_8, hint: str = "") -> str:
    """A file's text; ``DataError`` with a hint where it has another encoding."""
    content = read_bytes(path)
    try:
        return content.decode(encoding)
    except UnicodeError as error:
        name = "UTF-8" if encoding == UTF_8 else encoding
        where = f" (byte {error.start:,})" if isinstance(error, UnicodeDecodeError) else ""
        raise DataError(f"{path} is not {name} text{where}{hint}") from error


def lines_of(path: Path, table: Table) -> Iterator[tuple[int, list[str]]]:
    """Line numbers and columns, from 1 on; empty lines at the file's end are left out."""
    text = text_of(path, table.encoding).rstrip("\r\n")
    most = len(table.names) - 1 if table.separator == " " else -1
    return columns_in(path, text, table.separator, quotes=table.separator == ",", most=most)


def columns_in(
    path: Path, text: str, separator: str, *, quotes: bool, most: int = -1
) -> Iterator[tuple[int, list[str]]]:
    """Line numbers, from 1 on, and columns; ``quotes`` are literal, or read as in csv.

    Without quotes at most ``most`` + 1 columns are split off.
    """
    if quotes:
        yield from _csv_rows(path, text, separator)
        return
    # not splitlines: it would also break at line separators inside texts
    for number, line in enumerate(text.split("\n"), start=1):
        yield number, line.rstrip("\r").split(separator, most)


def _csv_rows(path: Path, text: str, separator: str) -> list[tuple[int, list[str]]]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True, delimiter=separator)
    with fields_of_any_size():
        try:
            return [(reader.line_num, columns) for columns in reader]
        except csv.Error as error:
            raise DataError(f"{path}: line {reader.line_num} is not csv: {error}") from error


_FIELDS = threading.Lock()


@contextmanager
def fields_of_any_size() -> Iterator[None]:
    """Lift csv's limit of 131,072 characters a field, which holds for the whole process."""
    with _FIELDS:
        before = csv.field_size_limit(2**31 - 1)
        try:
            yield
        finally:
            csv.field_size_limit(before)


def read_table(
    path: Path, table: Table, answer: Answer, *, skip_broken: bool = False
) -> tuple[list[Row], list[str]]:
    """The rows of a file, and which broken ones were skipped, line by line.

    A row is broken when it has another number of columns, an empty text, or a label that
    ``answer`` does not know. Raises ``DataError`` for a file of another format or without rows,
    and, unless ``skip_broken``, for broken rows, naming their lines.
    """
    stream = lines_of(path, table)
    names = list(table.names)
    if not names:
        names = next(stream, (0, [""]))[1]
    needed = (*table.texts, table.label)
    for name in needed:
        if name not in names:
            raise DataError(
                f"{path}: the first line must name the columns {', '.join(needed)}"
                f"{nearest(name, [known for known in names if known])}"
            )
        if names.count(name) > 1:
            raise DataError(f"{path}: the first line names the column {quoted(name)} twice")
    indices = [names.index(name) for name in needed]
    widths = table.widths or (len(names),)
    rows: list[Row] = []
    broken: list[str] = []
    for number, columns in stream:
        reason = _fault(columns, widths, indices, needed)
        label = None if reason else answer(columns[indices[-1]].strip())
        if label is not None:
            rows.append(Row(tuple(columns[index] for index in indices[:-1]), label))
        else:
            reason = reason or f"{table.label} is {quoted(columns[indices[-1]])}"
            broken.append(f"line {number} ({reason})")
    if broken and not skip_broken:
        raise DataError(complaint(path, broken))
    if not rows:
        raise DataError(f"{path} holds no rows")
    return rows, broken


def skipped_note(name: str, broken: Sequence[str]) -> list[str]:
    """A note on the broken rows that were left out of a file; none if there were none."""
    rows = "row" if len(broken) == 1 else "rows"
    shown = _first(broken, NOTED_LINES)
    return [f"{name}: {len(broken)} broken {rows} left out: {shown}"] if broken else []


def complaint(source: Path | str, broken: Sequence[str]) -> str:
    """The error message for a file with broken rows."""
    rows = "row is" if len(broken) == 1 else "rows are"
    return (
        f"{source}: {len(broken)} {rows} broken: {_first(broken, SHOWN_LINES)}; fix it, or "
        f"leave such rows out with {option('skip_broken', True)}"
    )


def _first(broken: Sequence[str], most: int) -> str:
    more = f" and {len(broken) - most} more" if len(broken) > most else ""
    return ", ".join(broken[:most]) + more


def _fault(
    columns: list[str], widths: tuple[int, ...], indices: list[int], names: tuple[str, ...]
) -> str:
    """The fault of a line before its label is read; empty if there is none."""
    if len(columns) not in widths:
        noun = "column" if len(columns) == 1 else "columns"
        return f"{len(columns)} {noun}, not {' or '.join(map(str, widths))}"
    for index, name in zip(indices[:-1], names, strict=False):
        if not columns[index].strip():
            return f"{name} is empty"
    return ""
