"""Rows of files of any size, one after another: a file is never in memory as a whole.

Every line of a text file, record of a table and row of parquet is one row. An empty or broken one
has a fault in words.
"""

from __future__ import annotations

from pathlib import Path

from sparing.core.errors import DataError
from sparing.tasks._endings import LINES, TABLES, ends_with
from sparing.tasks._frame import known_encoding
from sparing.tasks.texts.naming import Named
from sparing.tasks.texts.streams.base import Chosen, Cursor, RowFile, StreamedRow
from sparing.tasks.texts.streams.parquet import ParquetFile
from sparing.tasks.texts.streams.table import TableFile
from sparing.tasks.texts.streams.text import JsonFile, LineFile

__all__ = ["TABLES", "Chosen", "Cursor", "RowFile", "StreamedRow", "open_rows"]


def open_rows(path: Path, columns: Named, *, encoding: str, header: bool | None) -> RowFile:
    """A file by its ending: .parquet, .jsonl or .json, .csv, .tsv; any other has a text a line.

    All but parquet may be packed with .gz. Raises ``DataError`` for a file that is missing or
    damaged, and ``UsageError`` for an encoding that Python does not know.
    """
    encoding = known_encoding(encoding)
    if not path.is_file():
        raise DataError(f"{path} is not a file" if path.exists() else f"there is no file {path}")
    name = path.name.lower().removesuffix(".gz")
    if path.name.lower().endswith(".parquet"):
        return ParquetFile(path)
    if ends_with(name, LINES):
        return JsonFile(path, encoding)
    if ends_with(name, TABLES) and not name.endswith(".txt"):
        return TableFile(path, encoding, columns, header)
    return LineFile(path, encoding, columns)
