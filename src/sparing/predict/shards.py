"""One file of the output: its rows as bytes, and what a finished file holds."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparing.core.errors import DataError
from sparing.core.reading import open_plain, parse_json
from sparing.predict.columns import ERROR, FILE, ROW


@dataclass(frozen=True)
class Layout:
    """The columns of the output in their order, with their arrow types."""

    types: Mapping[str, Any]
    format: str

    def encode(self, rows: Sequence[Mapping[str, Any]]) -> bytes:
        """The content of a file with these rows; what a row does not have is null in it."""
        if self.format == "jsonl":
            return b"".join(_line({name: row.get(name) for name in self.types}) for row in rows)
        import pyarrow as pa  # type: ignore[import-untyped]
        from pyarrow import parquet

        schema = pa.schema(list(self.types.items()))
        columns = [
            pa.array([_fitting(row.get(name), kind) for row in rows], kind)
            for name, kind in self.types.items()
        ]
        content = io.BytesIO()
        parquet.write_table(pa.table(columns, schema=schema), content, compression="zstd")
        return content.getvalue()


def layout_of(
    copied: Sequence[str], copied_types: Sequence[Any], answers: Mapping[str, Any], format: str
) -> Layout:
    """File and row, copied columns, the answer, the error."""
    import pyarrow as pa

    types = {FILE: pa.string(), ROW: pa.int64(), **dict(zip(copied, copied_types, strict=True))}
    return Layout(types | dict(answers) | {ERROR: pa.string()}, format)


def _line(row: Mapping[str, Any]) -> bytes:
    try:
        text = json.dumps(row, ensure_ascii=False, allow_nan=False, default=str)
    except ValueError:  # a copied number that JSON does not have
        plain = {name: None if value != value else value for name, value in row.items()}
        text = json.dumps(plain, ensure_ascii=False, default=str)
    # a copied text may hold half a character, which is no UTF-8
    return text.encode("utf-8", "backslashreplace") + b"\n"


def _fitting(value: Any, kind: Any) -> Any:
    """A value for a column; in one of texts, values that are none are written as JSON."""
    if value is None or str(kind) != "string":
        return value
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text.encode("utf-8", "backslashreplace").decode()


def shard_name(number: int, format: str) -> str:
    """The name of a file of the output."""
    return f"part-{number:05d}.{format}"


def finished_rows(path: Path) -> tuple[int, int]:
    """The rows of a finished file, and how many have an error; ``DataError`` for a damaged one."""
    try:
        if path.suffix == ".jsonl":
            with open_plain(path) as file:
                errors = [_error_of(line) for line in file]
            return len(errors), sum(error is not None for error in errors)
        from pyarrow import parquet

        column = parquet.read_table(path, columns=[ERROR]).column(ERROR)
        return len(column), len(column) - column.null_count
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{path} is damaged: remove it, and the same command writes it again"
        ) from error


def _error_of(line: bytes) -> Any:
    return parse_json(line, finite=False)[ERROR]
