"""Columns of your own rows: tables, lines of JSON, parquet, data sets of ``datasets``."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from sparing.core.errors import DataError, UsageError, option, quoted
from sparing.core.reading import parse_json
from sparing.tasks._archive import damage_named
from sparing.tasks._arrow import require_plain_files
from sparing.tasks._endings import LINES, ends_with
from sparing.tasks.shared.files import unpacked_limit
from sparing.tasks.shared.hub import columns_of
from sparing.tasks.shared.table import UTF_8, columns_in, fields_of_any_size, text_of

SNIFFED_LINES, SNIFFED_CHARACTERS = 20, 2**16
SEPARATORS = ",;\t|"
PARQUET_ROWS = 256  # of decoded bytes: a row that is stored once may be repeated
STRINGS = ("string", "large_string", "string_view")


@dataclass(frozen=True)
class Frame:
    """The columns of one file or split.

    ``column`` returns a column's values, None where a row has none. ``texts`` are the columns that
    may hold texts. Messages name rows by ``unit`` and ``numbers``; ``faults`` are the rows with
    another number of columns. ``assumed`` lists properties that were guessed from the file. The
    first line of a table names the columns, and all its values are text.
    """

    source: str
    names: tuple[str, ...]
    texts: tuple[str, ...]
    column: Callable[[str], Sequence[Any]] = field(repr=False)
    numbers: Sequence[int] = field(repr=False)
    unit: str = "row"
    faults: Mapping[int, str] = field(default_factory=dict)
    assumed: tuple[str, ...] = ()
    is_table: bool = False


Check = Callable[[Sequence[str]], bool]


def read_frame(path: Path, *, encoding: str, is_header: Check, fits: Check) -> Frame:
    """The columns of a file, by its ending: .jsonl or .json, .parquet, else a table.

    ``is_header`` says whether a table's first line names the columns. ``fits`` says whether that
    line was split at the right separator; another one is used only if its first line fits. Raises
    ``DataError`` for a file of another format or encoding, ``UsageError`` for an encoding that
    Python does not know.
    """
    name = path.name.lower().removesuffix(".gz")
    if name.endswith(".parquet"):
        return _parquet(path)
    text = decoded_text(path, encoding)
    if ends_with(name, LINES):
        return _json_lines(path, text)
    return _table(path, text, is_header, fits)


def decoded_text(path: Path, encoding: str) -> str:
    """The text of a file, without the line ends at its end; raises as ``read_frame``."""
    hint = f"; name its encoding, such as {option('encoding', 'latin-1')}"
    return text_of(path, known_encoding(encoding), hint).rstrip("\r\n")


def known_encoding(encoding: str) -> str:
    """An encoding by its name in Python; that of UTF-8 takes a mark at the start of a file.

    Raises ``UsageError`` for an encoding that Python does not know.
    """
    try:
        "".encode(encoding)
        b"".decode(encoding)
    except (LookupError, ValueError, TypeError) as error:
        raise UsageError(f"text: unknown encoding {quoted(encoding)}") from error
    plain = encoding.lower().replace("_", "-") in ("utf-8", "utf8")
    return UTF_8 if plain else encoding


@dataclass(frozen=True)
class TableForm:
    """How the lines of a table are read: the separator, quotes, the first line and its role."""

    separator: str
    quotes: bool
    first: tuple[str, ...]
    header: bool
    assumed: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns: those in the header, else 1, 2 and so on."""
        return self.first if self.header else tuple(map(str, range(1, len(self.first) + 1)))


def table_form(path: Path, text: str, is_header: Check, fits: Check) -> TableForm:
    """The form of a table, by its name and the start of its text; see ``read_frame``."""
    comma = path.name.lower().removesuffix(".gz").endswith(".csv")
    separator, quotes = ("," if comma else "\t"), comma
    first = _first_line(path, text, separator, quotes)
    other = _sniffed(text)
    assumed: tuple[str, ...] = ()
    if other and other != separator and not fits(first):
        there = _first_line(path, text, other, True)
        if fits(there):
            separator, quotes, first = other, True, there
            assumed = (f"separator: {other!r}",)
    return TableForm(separator, quotes, tuple(first), is_header(first), assumed)


def _table(path: Path, text: str, is_header: Check, fits: Check) -> Frame:
    if not text.strip():
        raise DataError(f"{path} holds no rows")
    form = table_form(path, text, is_header, fits)
    rows = list(columns_in(path, text, form.separator, quotes=form.quotes))
    return _of_rows(str(path), form.names, rows[1:] if form.header else rows, form.assumed)


def _first_line(path: Path, text: str, separator: str, quotes: bool) -> list[str]:
    """The names in the first line, which may span several lines in csv."""
    if not quotes:
        return text.partition("\n")[0].rstrip("\r").split(separator)
    with fields_of_any_size():
        lines = (f"{line}\n" for line in text.split("\n"))
        try:
            return next(csv.reader(lines, delimiter=separator, strict=True), [""])
        except csv.Error as error:
            raise DataError(f"{path}: line 1 is not csv: {error}") from error


def _sniffed(text: str) -> str:
    """The separator that csv's sniffer detects in the first lines; "" if it detects none."""
    lines = text[:SNIFFED_CHARACTERS].split("\n")[:SNIFFED_LINES]
    try:
        return csv.Sniffer().sniff("\n".join(lines), SEPARATORS).delimiter
    except csv.Error:
        return ""


def _of_rows(
    source: str,
    names: tuple[str, ...],
    rows: Sequence[tuple[int, list[str]]],
    assumed: tuple[str, ...],
) -> Frame:
    faults = {}
    for index, (_, columns) in enumerate(rows):
        if len(columns) != len(names):
            noun = "column" if len(columns) == 1 else "columns"
            faults[index] = f"{len(columns)} {noun}, not {len(names)}"

    @cache
    def column(name: str) -> list[str | None]:
        at = names.index(name)
        return [None if i in faults else row[at] for i, (_, row) in enumerate(rows)]

    numbers = [number for number, _ in rows]
    return Frame(source, names, names, column, numbers, "line", faults, assumed, is_table=True)


def _json_lines(path: Path, text: str) -> Frame:
    """One object a line, or one list of objects; the columns are the names in all of them."""
    rows = list(_objects(path, text))
    if not rows:
        raise DataError(f"{path} holds no rows")
    names = tuple(dict.fromkeys(name for _, row in rows for name in row))

    @cache
    def column(name: str) -> list[Any]:
        return [row.get(name) for _, row in rows]

    texts = tuple(name for name in names if any(isinstance(value, str) for value in column(name)))
    return Frame(str(path), names, texts, column, [number for number, _ in rows], "line")


def _objects(path: Path, text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    if text.lstrip().startswith("["):
        rows = _parsed(path, 1, text)
        numbered = list(enumerate(rows if isinstance(rows, list) else [rows], start=1))
    else:
        numbered = [
            (number, _parsed(path, number, line))
            for number, line in enumerate(text.split("\n"), start=1)
            if line.strip()
        ]
    for number, row in numbered:
        if not isinstance(row, dict):
            raise DataError(f"{path}: line {number} is not a JSON object of columns: {quoted(row)}")
        yield number, row


def _parsed(path: Path, number: int, line: str) -> Any:
    try:
        return parse_json(line, finite=False)
    except ValueError as error:
        raise DataError(
            f"{path}: line {number} is no JSON ({quoted(str(error), 80)[1:-1]}); a .jsonl or .json "
            "file has one object a line"
        ) from error


def _parquet(path: Path) -> Frame:
    """The columns of a parquet file, each read when it is needed."""
    from pyarrow import parquet  # type: ignore[import-untyped]

    limit = unpacked_limit(path.stat().st_size)
    with damage_named(path):
        file = parquet.ParquetFile(path)
        schema, count = file.schema_arrow, file.metadata.num_rows

    @cache
    def column(name: str) -> list[Any]:
        values: list[Any] = []
        size = 0
        with damage_named(path):
            for batch in file.iter_batches(PARQUET_ROWS, columns=[name]):
                size += batch.nbytes
                if size > limit:
                    raise DataError(f"{path}: {quoted(name)} has more than {limit:,} bytes")
                values += batch.column(0).to_pylist()
        if len(values) != count:
            raise DataError(f"{path}: {quoted(name)} has {len(values)} values, not {count}")
        return values

    texts = tuple(entry.name for entry in schema if str(entry.type) in STRINGS)
    return Frame(str(path), tuple(schema.names), texts, column, range(1, count + 1))


def object_frame(source: str, columns: Mapping[str, Sequence[Any]]) -> Frame:
    """The columns of an object: lists of values by name, all of one length."""
    names = tuple(columns)
    texts = tuple(name for name in names if any(isinstance(one, str) for one in columns[name]))
    counts = {name: len(values) for name, values in columns.items()}
    if len(set(counts.values())) > 1:
        raise DataError(f"{source}: the columns are of different lengths: {counts}")
    count = next(iter(counts.values()), 0)
    return Frame(source, names, texts, columns.__getitem__, range(1, count + 1))


def data_set_frame(source: str, data_set: Any, split: str) -> Frame:
    """The columns of one split of a data set of ``datasets``."""
    rows = data_set[split]
    names = tuple(rows.column_names)
    features = getattr(rows, "features", None) or {}
    texts = tuple(
        name for name in names if getattr(features.get(name), "dtype", "string") in STRINGS
    )

    @cache
    def column(name: str) -> list[Any]:
        if not hasattr(rows, "with_format"):
            return list(columns_of("text", data_set, split, (name,))[0])
        # as arrow: datasets would decode pictures and sounds
        stored = rows.select_columns([name]).with_format("arrow")[:]
        values: list[Any] = stored.column(0).to_pylist()
        return values

    count = len(column(names[0])) if not features and names else len(rows)
    return Frame(f"{source}, split {split}", names, texts, column, range(1, count + 1))


def saved_data_set(folder: Path) -> Any:
    """The splits of a folder that ``save_to_disk`` wrote; only its arrow files are read."""
    import datasets

    with damage_named(folder):
        require_plain_files(folder)
        data_set: Any = datasets.load_from_disk(str(folder.resolve()))
    return data_set if isinstance(data_set, datasets.DatasetDict) else {"train": data_set}


def is_saved_data_set(folder: Path) -> bool:
    """Whether ``save_to_disk`` wrote this folder."""
    return (folder / "dataset_dict.json").is_file() or (folder / "state.json").is_file()
