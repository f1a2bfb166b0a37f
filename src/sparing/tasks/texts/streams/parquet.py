"""Rows of parquet, group by group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from sparing.core.errors import DataError
from sparing.tasks._archive import damage_named
from sparing.tasks._frame import PARQUET_ROWS, STRINGS, Frame
from sparing.tasks.shared.files import unpacked_limit
from sparing.tasks.texts.streams.base import (
    MARK,
    SAMPLE,
    Chosen,
    Cursor,
    RowFile,
    StreamedRow,
    checked_row,
)


class ParquetFile(RowFile):
    """The rows of a parquet file, by its row groups."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        with damage_named(path):
            file = self._open()
            self.schema, self.count = file.schema_arrow, file.metadata.num_rows
            groups = range(file.metadata.num_row_groups)
            self.groups = [file.metadata.row_group(group).num_rows for group in groups]
        self.names = tuple(self.schema.names)

    def _open(self) -> Any:
        from pyarrow import parquet  # type: ignore[import-untyped]

        # with a buffer a group of rows is read in parts and not as a whole
        return parquet.ParquetFile(self.path, buffer_size=2**20)

    def frame(self) -> Frame:
        """The first rows, to choose columns by."""
        texts = tuple(entry.name for entry in self.schema if str(entry.type) in STRINGS)

        def column(name: str) -> list[Any]:
            rows = islice(self.rows((name,), 0), SAMPLE)
            return [values[0] for values in rows]

        return Frame(str(self.path), self.names, texts, column, range(1, (self.count or 0) + 1))

    def types(self, names: Sequence[str]) -> list[Any]:
        """The arrow types of columns."""
        kinds = [self.schema.field(name).type for name in names]
        texts = super().types(names)
        pairs = zip(kinds, texts, strict=True)
        return [text if str(kind) in STRINGS else kind for kind, text in pairs]

    def cursor(self, chosen: Chosen) -> Cursor:
        """A position before the first row."""
        return _ParquetCursor(self, chosen)

    def rows(self, names: Sequence[str], start: int) -> Iterator[tuple[Any, ...]]:
        """The values of columns from a row on; earlier groups of rows are not read."""
        first, before = 0, 0
        while first < len(self.groups) and before + self.groups[first] <= start:
            before += self.groups[first]
            first += 1
        left, limit = start - before, unpacked_limit(self.size)
        with damage_named(self.path):
            groups, columns = list(range(first, len(self.groups))), list(names)
            batches = self._open().iter_batches(PARQUET_ROWS, row_groups=groups, columns=columns)
            for batch in batches if groups else ():
                if batch.nbytes > limit:
                    raise DataError(f"{self.path}: {PARQUET_ROWS} rows have {batch.nbytes:,} bytes")
                passed = min(left, batch.num_rows)
                left -= passed
                parts = [_values(batch.column(name).slice(passed)) for name in names]
                yield from zip(*parts, strict=True)


class _ParquetCursor(Cursor):
    def __init__(self, file: ParquetFile, chosen: Chosen) -> None:
        self._file, self._chosen = file, chosen
        self._row = 0
        self._rows: Iterator[tuple[Any, ...]] | None = None

    def _moved(self, count: int) -> None:
        self._row += count
        self.share = self._row / max(1, self._file.count or 0)

    def take(self, count: int) -> list[StreamedRow]:
        """The next rows."""
        texts, more = self._chosen.texts, self._chosen.more
        names = tuple(dict.fromkeys((*texts, *more)))
        if self._rows is None:
            self._rows = self._file.rows(names, self._row)
        text_at, more_at = ([names.index(name) for name in some] for some in (texts, more))
        rows = [
            checked_row([values[at] for at in text_at], [values[at] for at in more_at], texts)
            for values in islice(self._rows, count)
        ]
        self._moved(len(rows))
        return rows

    def skip(self, count: int) -> int:
        """Pass over rows."""
        passed = min(count, (self._file.count or 0) - self._row)
        self._rows = None
        self._moved(passed)
        return passed


def _values(column: Any) -> list[Any]:
    """A column's values; bytes that are no text are marked."""
    try:
        values: list[Any] = column.to_pylist()
    except UnicodeDecodeError:
        return [_value(one) for one in column]
    return values


def _value(one: Any) -> Any:
    try:
        return one.as_py()
    except UnicodeDecodeError:
        return MARK
