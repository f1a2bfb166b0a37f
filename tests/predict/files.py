"""Files of texts to answer, and the rows of an output."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from tests.agree.models import rows


def texts(count: int) -> list[str]:
    """Short texts of different lengths; every tenth repeats an earlier one."""
    listed = [f"{row} {'ab ' * (number % 7)}" for number, row in enumerate(rows(count))]
    for number in range(9, count, 10):
        listed[number] = listed[number // 2]
    return listed


def write_parquet(path: Path, group: int = 32, **columns: Any) -> Path:
    """A parquet file with small groups of rows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pa.table(columns), path, row_group_size=group)
    return path


def output(folder: Path) -> list[dict[str, Any]]:
    """All rows of an output, in the order of its files."""
    listed: list[dict[str, Any]] = []
    for path in sorted(folder.glob("part-*")):
        if path.suffix == ".parquet":
            listed += parquet.read_table(path).to_pylist()
        else:
            listed += [json.loads(line) for line in path.read_text().splitlines()]
    return listed


def contents(folder: Path) -> dict[str, bytes]:
    """The bytes of the files of an output, by name."""
    return {path.name: path.read_bytes() for path in sorted(folder.glob("part-*"))}


def times(folder: Path) -> set[tuple[str, int]]:
    """The files of an output, each with the time in ns when it was written."""
    return {(path.name, path.stat().st_mtime_ns) for path in folder.glob("part-*")}
