"""A number with all its context: machine, count, spread, source."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, get_args

from sparing.core.compressed import compressed_path, expand_file, read_stored, stored_path
from sparing.core.errors import DataError
from sparing.core.reading import parse_json, read_plain
from sparing.core.writing import append, open_existing, write_atomically

Obtained = Literal["measured", "integrated", "estimated", "modelled", "paper"]
Label = str | int | float | bool | None
Labels = dict[str, Label]
RECORDS = "records.jsonl"  # in a run's folder
LARGEST = 1e30  # of any measured number; squares and ratios of larger ones leave the float range


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


@dataclass(frozen=True)
class Record:
    """One result.

    ``labels`` say what it belongs to (``arm``, ``seed``, ...). ``interval`` is its 95 % interval,
    ``count`` the number of measurements, ``obtained`` the method. ``machine`` and ``commit``
    identify the machine and the code; ``cell`` is the key of the run that made it.
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
        """One line of JSON; raises ``DataError`` for a record that could not be read back."""
        problem = _problem(self)
        if problem:
            raise DataError(f"the result {self.name!r} cannot be stored: {problem}")
        return json.dumps(asdict(self), ensure_ascii=False, allow_nan=False)


def measured(
    labels: Mapping[str, Label], unit: str, count: int = 1, /, **values: int | float | None
) -> list[Record]:
    """A record of every value by its name; labels, unit and count are those of all."""
    return [
        Record(name, value, unit, "measured", dict(labels), count=count)
        for name, value in values.items()
    ]


def least_sure(records: Iterable[Record]) -> Obtained:
    """How what follows from these records came about: as the least sure of them did.

    From the surest on: measured, integrated, estimated, modelled, paper.
    """
    ways = get_args(Obtained)
    obtained: Obtained = max((r.obtained for r in records), key=ways.index, default="measured")
    return obtained


def _from_dict(entry: dict[str, Any]) -> Record:
    """The record of a line; ``ValueError`` or ``TypeError`` for a line that is not a record."""
    interval = entry.get("interval")
    record = Record(**{**entry, "interval": tuple(interval) if interval else None})
    problem = _problem(record)
    if problem:
        raise ValueError(problem)  # it would fail later, in evaluation
    return record


def _problem(record: Record) -> str:
    """Why a record cannot be evaluated; empty if it can."""
    texts = ("name", "unit", "obtained", "cell", "machine", "commit", "time")
    for name in texts:
        if not isinstance(getattr(record, name), str):
            return f"its {name} is no text"
    if record.value is not None and not is_finite(record.value):
        return f"its value is {str(record.value)[:40]}"
    if record.interval is not None:
        pair = len(record.interval) == 2 and all(map(is_finite, record.interval))
        if not pair or record.interval[0] > record.interval[1]:
            return f"its interval is {str(record.interval)[:40]}"
    if not isinstance(record.count, int) or not is_finite(record.count) or record.count < 0:
        return f"its count is {str(record.count)[:40]}"
    return _label_problem(record.labels)


def _label_problem(labels: object) -> str:
    if not isinstance(labels, dict):
        return "its labels are no object"
    for name, value in labels.items():
        if not isinstance(value, str | bool | None) and not is_finite(value):
            return f"its label {str(name)[:40]} is {str(value)[:40]}"
    return ""


def is_finite(value: object) -> bool:
    """Whether this is a number to compute with: not a bool or NaN, and at most 1e30 in size."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and -LARGEST <= value <= LARGEST  # type: ignore[operator]  # NaN fails both


class RecordLog:
    """A file of records: one that grows and survives being killed in the middle of a write.

    The records of a finished run may be compressed, in ``NAME.xz`` in the place of ``NAME``. They
    are read as they are; whatever changes them puts the plain file back first.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, records: Sequence[Record]) -> None:
        """Add records as whole lines, on disk before this returns.

        A half-written line of an earlier run is cut off first.
        """
        expand_file(self.path)
        self._drop_torn_line()
        append(self.path, _lines(records))

    def replace(self, records: Sequence[Record]) -> None:
        """Put these records in the place of all others, in one step."""
        expand_file(self.path)
        write_atomically(self.path, _lines(records))

    def read(self) -> list[Record]:
        """All whole records; a torn last line is ignored, but not in a compressed file.

        Raises ``DataError`` when another line is not a record, when the file is damaged, and when
        there are two files that differ.
        """
        return list(self._entries())

    def _entries(self) -> Iterator[Record]:
        path = stored_path(self.path)
        if path is None:
            return
        *lines, torn = read_stored(path).split(b"\n")
        if torn and path == compressed_path(self.path):
            raise DataError(f"{path}: line {len(lines) + 1} is cut short")
        for number, line in enumerate(lines, 1):
            try:
                yield _from_dict(parse_json(line))
            except (ValueError, TypeError, AttributeError) as error:
                raise DataError(f"{path}: line {number} is not a record") from error

    def _drop_torn_line(self) -> None:
        if not self.path.exists():
            return
        content = read_plain(self.path)
        if content and not content.endswith(b"\n"):
            whole = content.rfind(b"\n") + 1
            with open_existing(self.path) as file:
                file.truncate(whole)


def _lines(records: Sequence[Record]) -> bytes:
    return "".join(record.to_json() + "\n" for record in records).encode()
