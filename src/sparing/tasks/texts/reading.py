"""Read texts or pairs of texts, labels beside them or not, from files, data sets and objects."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from sparing.core.errors import DataError, UsageError, nearest, option, quoted
from sparing.core.paths import expanded
from sparing.tasks._columns import (
    fault_of,
    require_columns,
    shown,
    text_names,
)
from sparing.tasks._endings import TABLES, ends_with
from sparing.tasks._frame import (
    Frame,
    data_set_frame,
    decoded_text,
    is_saved_data_set,
    object_frame,
    read_frame,
    saved_data_set,
)
from sparing.tasks.shared.hub import from_hub, looks_like_hub
from sparing.tasks.texts.distinct import distinct_rows
from sparing.tasks.texts.naming import Named, header_rule, label_of, named_columns, unreadable

LOGGER = logging.getLogger(__name__)
SHOWN_ROWS = 3
Row = tuple[str, ...]


@dataclass(frozen=True)
class Texts:
    """Rows of one text or of two, and their labels as written where they have some.

    A row without a label has None there. ``notes`` list what was assumed, skipped or cut.
    ``source`` is the file, the data set or the kind of object.
    """

    source: str
    rows: tuple[Row, ...]
    labels: tuple[str | None, ...] | None = None
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def are_pairs(self) -> bool:
        """Whether each row has two texts."""
        return bool(self.rows) and len(self.rows[0]) == 2

    @cached_property
    def distinct(self) -> tuple[int, ...]:
        """The index of the first of all rows with the same texts, up to white space."""
        return tuple(distinct_rows(self.rows))

    @property
    def duplicates(self) -> int:
        """How many rows repeat an earlier one."""
        return len(self) - len(self.distinct)

    def subset(self, indices: Sequence[int]) -> Texts:
        """The rows with these indices, in this order, without notes."""
        labels = None if self.labels is None else tuple(self.labels[index] for index in indices)
        return Texts(self.source, tuple(self.rows[index] for index in indices), labels)

    def require_distinct(self, fewest: int, purpose: str) -> None:
        """Raise ``DataError`` for fewer distinct rows; ``purpose`` says what needs them."""
        count = len(self.distinct)
        if count >= fewest:
            return
        noun = "text" if count == 1 else "texts"
        all_rows = f" in {len(self):,} rows" if self.duplicates else ""
        raise DataError(
            f"{self.source} holds {count:,} distinct {noun}{all_rows}: {purpose} needs at least "
            f"{fewest:,}"
        )


def read_texts(
    source: Any,
    *,
    columns: str | Sequence[str] | None = None,
    label: str | None = None,
    encoding: str = "utf-8",
    header: bool | None = None,
    split: str = "",
) -> Texts:
    """Texts, or pairs of texts, of a file, a data set or an object.

    ``source`` is a file: .csv, .tsv, .jsonl or .json, all also with .gz, or .parquet. Any other has
    one text a line, or two with a tab between them on every line. Or it is a folder of
    ``save_to_disk``, or ``owner/name[:configuration]`` of the hub. Or it is an object: a list of
    texts or of pairs, a mapping of columns, a data set of ``datasets`` or a data frame of pandas.
    ``split`` names the split of a data set (unless given: train, or the only one).

    ``columns`` names the column of the texts, or the two columns of pairs. Unless given, a known
    pair of names is used, else a known name, else all columns of texts, if there are one or two.
    ``label`` names the column of labels ("": none). Unless given, it is ``label``, ``labels`` or
    ``target``, if there is one. ``header`` says whether a table's first line names its columns.
    Unless given, it does where it has a known name, and, in a .csv or with three columns or more,
    where all its fields could be names. The notes of the result state all choices. Rows without a
    text are left out, with a note.

    Raises ``DataError`` for a source that is missing, damaged, no text or without any text, and
    ``UsageError`` for names or an encoding that do not exist.
    """
    if isinstance(source, Texts):
        return source
    named = named_columns(columns, label)
    if isinstance(source, str | Path):
        texts = _from_path(str(source), named, encoding, header, split)
    elif isinstance(source, Sequence) and not isinstance(source, bytes):
        frame = _list_frame(source)
        texts = _of_frame(frame, Named(frame.names, ""))
    else:
        texts = _of_frame(_frame_of(source, split), named)
    return _checked(texts)


def _from_path(
    source: str, columns: Named, encoding: str, header: bool | None, split: str
) -> Texts:
    path = expanded(source)
    if path.is_dir():
        if not is_saved_data_set(path):
            raise DataError(f"{source} is a folder: give a file of texts")
        return _of_data_set(source, saved_data_set(path), columns, split)
    if not path.exists():
        if not looks_like_hub(source) or ends_with(source, TABLES):
            raise DataError(f"there is no file {source}: give a file with one text a line")
        name, _, part = source.partition(":")
        instead = f"there is no file {source} here either"
        data_set = from_hub("texts", *(word for word in (name, part) if word), instead=instead)
        return _of_data_set(source, data_set, columns, split)
    if not path.is_file():
        raise DataError(f"{source} is not a file")  # reading a pipe would block
    if not ends_with(path, TABLES) or ends_with(path, (".txt", ".txt.gz")):
        return _lines(path, columns, encoding)
    return _of_frame(_table(path, columns, encoding, header), columns)


def _lines(path: Path, columns: Named, encoding: str) -> Texts:
    """One text a line, or two columns where every line has one tab between two texts."""
    text = decoded_text(path, encoding)
    _refuse_nul(path, text)
    # not splitlines: it would also break at marks inside of texts
    numbered = list(enumerate(re.split("\r\n|\n|\r", text), start=1))
    lines = [(number, line) for number, line in numbered if line.strip()]
    notes = _skipped(str(path), len(numbered) - len(lines) if text else 0, "lines")
    numbers, parts = [number for number, _ in lines], [line.split("\t") for _, line in lines]
    if lines and all(len(part) == 2 and all(map(str.strip, part)) for part in parts):
        first, second = map(list, zip(*parts, strict=True))
        frame = object_frame(str(path), {"1": first, "2": second})
        frame = replace(frame, numbers=numbers, unit="line", assumed=("a tab on every line",))
        texts = _of_frame(frame, columns)
        return replace(texts, notes=(*texts.notes, *notes))
    if columns.texts or columns.label:
        raise UsageError(f"{path} has one text a line and no columns: give a .csv or .tsv")
    return _sized(
        Texts(str(path), tuple((line,) for _, line in lines), None, notes), "line", numbers
    )


def _table(path: Path, columns: Named, encoding: str, header: bool | None) -> Frame:
    is_header = header_rule(path, columns, header)
    frame = read_frame(path, encoding=encoding, is_header=is_header, fits=columns.fits)
    if not frame.is_table:
        return frame
    numbered = frame.names == tuple(map(str, range(1, len(frame.names) + 1)))
    first = "the first line is a row" if numbered else "the first line names the columns"
    return replace(frame, assumed=(*frame.assumed, first))


def _frame_of(source: Any, split: str) -> Frame:
    """The columns of an object; raises ``UsageError`` for one of another kind."""
    if hasattr(source, "column_names") and not isinstance(source, Mapping):
        return data_set_frame("the data set", {"given": source}, "given")
    if (
        isinstance(source, Mapping)
        and source
        and all(hasattr(v, "column_names") for v in source.values())
    ):
        return _split_frame("the data set", source, split)
    if hasattr(source, "columns") and hasattr(source, "iloc"):
        values = {str(name): source[name].tolist() for name in source.columns}
        return object_frame("the data frame", {n: _without_nan(v) for n, v in values.items()})
    if isinstance(source, Mapping):
        return object_frame("the mapping", {str(n): _listed(n, v) for n, v in source.items()})
    kind = type(source).__name__
    raise UsageError(
        f"texts are a file, a data set, a list, a mapping or a data frame; got a {kind}"
    )


def _listed(name: object, values: Any) -> list[Any]:
    """A column's values; raises ``UsageError`` for a single value."""
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise UsageError(f"the column {quoted(name)} is no list, but {quoted(values)}")
    return list(values)


def _list_frame(rows: Sequence[Any]) -> Frame:
    if all(isinstance(row, str) for row in rows):
        return object_frame("the list", {"text": list(rows)})
    for number, row in enumerate(rows, start=1):
        pair = isinstance(row, list | tuple) and len(row) == 2
        if not pair or not all(isinstance(text, str) for text in row):
            raise DataError(f"the list: row {number} is no text or pair: {quoted(row)}")
    return object_frame("the list", {"text": [a for a, _ in rows], "pair": [b for _, b in rows]})


def _without_nan(values: list[Any]) -> list[Any]:
    return [None if value is None or value != value else value for value in values]


def _of_data_set(source: str, data_set: Any, columns: Named, split: str) -> Texts:
    splits = data_set if isinstance(data_set, Mapping) else {"train": data_set}
    return _of_frame(_split_frame(source, splits, split), columns)


def _split_frame(source: str, splits: Mapping[str, Any], split: str) -> Frame:
    name = split or (next(iter(splits)) if len(splits) == 1 else "train")
    if name not in splits:
        raise UsageError(f"{source} has no split {quoted(name)}{nearest(name, splits)}")
    return data_set_frame(source, splits, name)


def _of_frame(frame: Frame, columns: Named) -> Texts:
    """The rows of a frame, and the choice of its columns in a note."""
    if not frame.names:
        raise DataError(f"{frame.source} has no columns")
    label = label_of(frame, columns)
    names = columns.texts or text_names(frame, (label,), option("columns", "NAME,NAME"))
    require_columns(frame, (*names, *([label] if label else [])))
    if frame.faults:
        raise DataError(_broken(frame, list(frame.faults), list(frame.faults.values())))
    rows = list(zip(*(frame.column(name) for name in names), strict=True))
    present, faulty, reasons = [], [], []
    for index, row in enumerate(rows):
        if any(value is None or (isinstance(value, str) and not value.strip()) for value in row):
            continue
        reason = fault_of(row, names)
        present.append(index)
        if reason:
            faulty.append(index)
            reasons.append(reason)
    if faulty:
        raise DataError(_broken(frame, faulty, reasons))
    note = f"{frame.source}: texts: {shown(names)}; label: {shown((label,)) if label else 'none'}"
    others = [name for name in frame.names if name not in (*names, label)]
    note += f"; left out: {shown(others)}" if others else ""
    notes = ("; ".join((note, *frame.assumed)), *_skipped(frame.source, len(rows) - len(present)))
    labels, more = _labels(frame, label, present)
    texts = Texts(frame.source, tuple(rows[index] for index in present), labels, notes + more)
    return _sized(texts, frame.unit, [frame.numbers[index] for index in present])


def _labels(
    frame: Frame, name: str, present: Sequence[int]
) -> tuple[tuple[str | None, ...] | None, tuple[str, ...]]:
    """The labels of these rows as written, and a note on rows without one."""
    if not name:
        return None, ()
    values = frame.column(name)
    if any(isinstance(values[index], list | tuple | dict) for index in present):
        return None, (f"{frame.source}: {shown((name,))} holds lists, so labels are left out",)
    labels = tuple(_written(values[index]) for index in present)
    missing = sum(value is None for value in labels)
    if missing == len(labels):
        return None, (f"{frame.source}: no row has a label",)
    return labels, (f"{frame.source}: {missing:,} rows have no label",) if missing else ()


def _written(value: Any) -> str | None:
    """A label as text: whole numbers without a fraction, nothing as None."""
    if value is None or value != value:
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value).strip() or None


def _skipped(source: str, count: int, noun: str = "rows") -> tuple[str, ...]:
    return (f"{source}: {count:,} {noun} without a text were left out",) if count > 0 else ()


def _broken(frame: Frame, indices: Sequence[int], reasons: Sequence[str]) -> str:
    lines = [
        f"{frame.unit} {frame.numbers[index]} ({reason})"
        for index, reason in zip(indices, reasons, strict=True)
    ]
    count, noun = len(lines), "row is" if len(lines) == 1 else "rows are"
    more = f" and {count - SHOWN_ROWS} more" if count > SHOWN_ROWS else ""
    hint = "; quote a text that holds the separator" if frame.is_table else ""
    return f"{frame.source}: {count} {noun} broken: {', '.join(lines[:SHOWN_ROWS])}{more}{hint}"


def _refuse_nul(path: Path, text: str) -> None:
    at = text.find("\0")
    if at >= 0:
        raise DataError(
            f"{path}: line {text.count(chr(10), 0, at) + 1} holds a null character: it is no text, "
            f"or has another encoding, such as {option('encoding', 'utf-16')}"
        )


def _sized(texts: Texts, unit: str, numbers: Sequence[int]) -> Texts:
    """The same; raises ``DataError`` for a null character or a text that is far too long."""
    for number, row in zip(numbers, texts.rows, strict=True):
        if reason := unreadable(row):
            raise DataError(f"{texts.source}: the text of {unit} {number} {reason}")
    return texts


def _checked(texts: Texts) -> Texts:
    """The same, with a note on duplicates, and its notes logged.

    Raises ``DataError`` without any text.
    """
    if not texts.rows:
        raise DataError(f"{texts.source} holds no texts: write one on each line")
    if texts.duplicates:
        note = f"{texts.source}: {texts.duplicates:,} of {len(texts):,} rows repeat an earlier one"
        texts = replace(texts, notes=(*texts.notes, note))
    for note in texts.notes:
        LOGGER.info("%s", note)
    return texts
