"""Tables of texts and labels: GLUE's tsv files, and anyone's own tsv or csv."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from sparing.core.errors import DataError, nearest
from sparing.tasks._files import read_bytes

SHOWN_LINES = 5
Answer = Callable[[str], int | float | None]


class Row(NamedTuple):
    """One example: one text or a pair, and its class number or value."""

    texts: tuple[str, ...]
    label: int | float


@dataclass(frozen=True)
class Table:
    """How a file's lines are read.

    ``texts`` and ``label`` are names of columns; ``names`` are those of all columns where the
    first line does not give them, ``widths`` how many columns a line may then have. ``separator``
    is a tab with quotes read literally, a space that ends the first column, or a comma with
    quotes as in csv.
    """

    texts: tuple[str, ...]
    label: str
    names: tuple[str, ...] = ()
    widths: tuple[int, ...] = ()
    separator: str = "\t"
    encoding: str = "utf-8-sig"


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


def lines_of(path: Path, table: Table) -> Iterator[tuple[int, list[str]]]:
    """Line numbers and columns, from 1 on; what is empty at the file's end is left out."""
    try:
        text = read_bytes(path).decode(table.encoding)
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text") from error
    if table.separator == ",":
        reader = csv.reader(io.StringIO(text.rstrip("\r\n"), newline=""), strict=True)
        try:
            for columns in reader:
                yield reader.line_num, columns
        except csv.Error as error:
            raise DataError(f"{path}: line {reader.line_num} is not csv: {error}") from error
        return
    # not splitlines: it would also break at marks that stand inside of texts
    for number, line in enumerate(text.rstrip("\r\n").split("\n"), start=1):
        most = len(table.names) - 1 if table.separator == " " else -1
        yield number, line.rstrip("\r").split(table.separator, most)


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
    wanted = (*table.texts, table.label)
    for name in wanted:
        if name not in names:
            raise DataError(
                f"{path}: the first line must name the columns {', '.join(wanted)}"
                f"{nearest(name, [known for known in names if known])}"
            )
        if names.count(name) > 1:
            raise DataError(f"{path}: the first line names the column {name!r} twice")
    places = [names.index(name) for name in wanted]
    widths = table.widths or (len(names),)
    rows: list[Row] = []
    broken: list[str] = []
    for number, columns in stream:
        reason = _fault(columns, widths, places, wanted)
        label = None if reason else answer(columns[places[-1]].strip())
        if label is not None:
            rows.append(Row(tuple(columns[place] for place in places[:-1]), label))
        else:
            reason = reason or f"{table.label} is {columns[places[-1]][:40]!r}"
            broken.append(f"line {number} ({reason})")
    if broken and not skip_broken:
        raise DataError(complaint(path, broken))
    if not rows:
        raise DataError(f"{path} holds no rows")
    return rows, broken


def skipped_note(path: Path, broken: list[str]) -> list[str]:
    """What to tell of the rows of a file that were left out; nothing where none were."""
    rows = "row" if len(broken) == 1 else "rows"
    said = f"{path.name}: {len(broken)} broken {rows} left out: {', '.join(broken)}"
    return [said] if broken else []


def _fault(
    columns: list[str], widths: tuple[int, ...], places: list[int], names: tuple[str, ...]
) -> str:
    """What is wrong with a line before its label is read; empty where nothing is."""
    if len(columns) not in widths:
        noun = "column" if len(columns) == 1 else "columns"
        return f"{len(columns)} {noun}, not {' or '.join(map(str, widths))}"
    for place, name in zip(places[:-1], names, strict=False):
        if not columns[place].strip():
            return f"{name} is empty"
    return ""


def complaint(path: Path, broken: list[str]) -> str:
    """What to say of a file whose broken rows were not to be left out."""
    shown = ", ".join(broken[:SHOWN_LINES])
    more = len(broken) - SHOWN_LINES
    rest = f" and {more} more" if more > 0 else ""
    rows = "row is" if len(broken) == 1 else "rows are"
    return (
        f"{path}: {len(broken)} {rows} broken: {shown}{rest}; mend the file, or leave "
        "such rows out with skip_broken=True"
    )
