"""A number with everything that makes it a result: machine, count, spread, source."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from sparing.core.errors import DataError
from sparing.core.reading import parse_json, read_plain
from sparing.core.writing import append, open_existing

Obtained = Literal["measured", "integrated", "estimated", "modelled", "paper"]
Label = str | int | float | bool | None


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


@dataclass(frozen=True)
class Record:
    """One result.

    ``labels`` say what it belongs to (arm, seed, tokens, ...); ``interval`` is its 95 % interval,
    ``count`` how many measurements stand behind it; ``obtained`` how it came about; ``machine``
    and ``commit`` name where and with what code; ``cell`` is the key of the run that made it.
    """

    name: str
    value: int | float | None
    unit: str
    obtained: Obtained
    labels: dict[str, Label] = field(default_factory=dict)
    interval: tuple[int | float, int | float] | None = None
    count: int = 1
    cell: str = ""
    machine: str = ""
    commit: str = ""
    time: str = field(default_factory=_now)

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self), ensure_ascii=False, allow_nan=False)


def _from_dict(entry: dict[str, Any]) -> Record:
    """The record of a line; ``ValueError`` or ``TypeError`` where it is none that was written."""
    interval = entry.get("interval")
    record = Record(**{**entry, "interval": tuple(interval) if interval else None})
    texts = (record.name, record.unit, record.obtained, record.cell, record.machine, record.commit)
    if not all(isinstance(text, str) for text in texts) or not isinstance(record.labels, dict):
        raise TypeError(texts)
    numbers = (record.value, *(record.interval or ()))
    if not all(number is None or is_finite(number) for number in numbers):
        raise ValueError(numbers)  # it would not be judged, and fail later
    if record.interval is not None and (len(record.interval) != 2 or None in record.interval):
        raise ValueError(record.interval)
    return record


def is_finite(value: object) -> bool:
    """Whether this is a number that can be reckoned with: no bool, no NaN, not infinite."""
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool)


class RecordLog:
    """An append-only file of records that survives being killed in the middle of a write."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, records: list[Record]) -> None:
        """Add records as whole lines, on disk before this returns.

        A line that an earlier run left half-written is cut off first.
        """
        self._drop_torn_line()
        lines = "".join(record.to_json() + "\n" for record in records)
        append(self.path, lines.encode())

    def read(self) -> list[Record]:
        """All whole records; a torn last line is ignored.

        Raises ``DataError`` when another line is not a record.
        """
        return list(self._entries())

    def _entries(self) -> Iterator[Record]:
        if not self.path.exists():
            return
        lines = read_plain(self.path).split(b"\n")
        for number, line in enumerate(lines[:-1], 1):
            try:
                yield _from_dict(parse_json(line))
            except (ValueError, TypeError, AttributeError) as error:
                raise DataError(f"{self.path}: line {number} is not a record") from error

    def _drop_torn_line(self) -> None:
        if not self.path.exists():
            return
        content = read_plain(self.path)
        if content and not content.endswith(b"\n"):
            whole = content.rfind(b"\n") + 1
            with open_existing(self.path) as file:
                file.truncate(whole)
