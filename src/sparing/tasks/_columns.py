"""Which columns of your own rows are the texts, which is the label, and which are left out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from sparing.core.errors import DataError, listed, nearest, option, quoted
from sparing.core.reading import parse_json
from sparing.tasks._frame import Frame
from sparing.tasks.shared.table import Answer, Row

LABEL = "label"
INDEX = re.compile(r"(.*[ _-])?(id|ids|idx|index|guid|uuid)|unnamed: ?[0-9]+|")
TEXTS = (
    "text",
    "sentence",
    "review",
    "review_text",
    "comment",
    "comment_text",
    "content",
    "document",
    "tweet",
    "message",
    "body",
)
PAIRS = (
    ("sentence1", "sentence2"),
    ("question1", "question2"),
    ("text1", "text2"),
    ("text_a", "text_b"),
    ("premise", "hypothesis"),
    ("question", "answer"),
    ("question", "sentence"),
    ("question", "context"),
    ("query", "document"),
    ("text", "pair"),
)
WHOLE = re.compile("[+-]?[0-9]{1,18}")
HELD = ("1", "1.0", "True", "true")
FLAGS = (*HELD, "0", "0.0", "False", "false")
MARKS = "|;,"  # between several labels in one column


@dataclass(frozen=True)
class Columns:
    """The requested columns; "" means that the file's own names decide."""

    text: str
    pair: str
    label: str
    header: bool
    answer: Literal["class", "number", "labels", "ranking"]
    skip_broken: bool
    encoding: str

    def fits(self, first: Sequence[str]) -> bool:
        """Whether a table's first line was split at the right separator, as far as it shows."""
        return self.label in first if self.header else len(first) > 1


@dataclass(frozen=True)
class Chosen:
    """The columns that are used, and those that are not.

    Several labels are in one column, or have a column of 0 and 1 each, its ``flags``.
    """

    texts: tuple[str, ...]
    label: str
    left_out: tuple[str, ...]
    flags: tuple[str, ...] = ()

    @property
    def note(self) -> str:
        """The used columns, in words."""
        left = f"; left out: {shown(self.left_out)}" if self.left_out else ""
        labels = f"labels: {shown(self.flags)}" if self.flags else f"label: {shown((self.label,))}"
        return f"texts: {shown(self.texts)}; {labels}{left}"


def shown(names: Sequence[str]) -> str:
    """Names of columns for a message."""
    return listed([name.strip() or "(no name)" for name in names], 8)


def choose(frame: Frame, columns: Columns) -> Chosen:
    """The columns of the texts and of the label.

    Columns without a header are called 1, 2 and so on. Several labels are lists of names, or names
    with ``|``, ``;`` or commas between them, in one column. Or ``label`` names columns of 0 and 1,
    with commas between; by default all such columns.

    Without ``text`` these are left out: columns that are an index by their name or their values
    (whole numbers in one sequence), and columns of numbers beside texts. Of the rest a known pair
    of names is used, else a known name, else all, if there are one or two. Raises ``DataError``
    where the choice is not clear.
    """
    names, label = frame.names, columns.label
    if not names:
        where = "its first line" if frame.is_table else "it"
        raise DataError(f"{frame.source}: {where} has no columns")
    if not columns.header and label == LABEL:
        label = names[-1]
    flags = _flags_of(frame, label) if columns.answer == "labels" else ()
    if label not in names and not flags:
        raise DataError(_no_label(frame, columns))
    used = flags or (label,)
    if columns.text:
        texts = tuple(name for name in (columns.text, columns.pair) if name)
    else:
        how = f"{option('text', 'NAME')} (and {option('pair', 'NAME')})"
        texts = text_names(frame, used, how)
    require_columns(frame, (*texts, *used))
    left = tuple(name for name in names if name not in (*texts, *used))
    return Chosen(texts, label, left, flags)


def _flags_of(frame: Frame, label: str) -> tuple[str, ...]:
    """The columns of 0 and 1 that hold a label each; none where one column names the labels.

    They are those that ``label`` names, with commas between, else all of 0 and 1.
    """
    named = tuple(part.strip() for part in label.split(","))
    if label in frame.names or (len(named) == 1 and label != LABEL):
        return ()
    if len(named) > 1:
        return named
    flags = tuple(name for name in frame.names if _is_flag(frame.column(name)))
    return flags if len(flags) > 1 else ()


def require_columns(frame: Frame, needed: Sequence[str]) -> None:
    """Raise ``DataError`` unless a frame has each of these columns once."""
    names = frame.names
    for name in needed:
        if name not in names:
            raise DataError(f"{frame.source} has no column {quoted(name)}{nearest(name, names)}")
        if names.count(name) > 1:
            raise DataError(f"{frame.source}: the first line names the column {quoted(name)} twice")


def _no_label(frame: Frame, columns: Columns) -> str:
    flags = [name for name in frame.names if _is_flag(frame.column(name))]
    if len(flags) > 1:
        return (
            f"{frame.source}: the columns {listed(flags)} hold 0 and 1: for several labels a row "
            f"give {option('answer', 'labels')}, for one {option('label', 'NAME')}"
        )
    if not columns.header:
        return (
            f"{frame.source}: without a header columns are numbers from 1 to {len(frame.names)}, "
            f"and {quoted(columns.label)} is none"
        )
    hint = f"; say which with {option('label', 'NAME')}"
    if frame.is_table:
        hint += f", or {option('header', False)} where the first line is a row"
    where = "the first line names" if frame.is_table else "there is"
    return f"{frame.source}: {where} no column {quoted(columns.label)}" + (
        f"{nearest(columns.label, [name for name in frame.names if name])}{hint}"
    )


def text_names(frame: Frame, used: Sequence[str], how: str) -> tuple[str, ...]:
    """The columns of the texts, by the rule of ``choose``; ``how`` says how to name them.

    ``used`` are the columns of labels.
    """
    names = [name for name in frame.texts if name not in used and not _is_index(frame, name)]
    names = [name for name in names if not _is_number(frame, name)] or names
    by_name = {name.strip().lower(): name for name in reversed(names)}
    for known in (*PAIRS, *((name,) for name in TEXTS)):
        if all(name in by_name for name in known):
            return tuple(by_name[name] for name in known)
    if len(names) in (1, 2):
        return tuple(names)
    rest = names or [name for name in frame.names if name not in used]
    raise DataError(
        f"{frame.source} has {len(frame.names)} columns: say which hold the texts with "
        f"{how}; there are {shown(rest)}"
    )


def _is_index(frame: Frame, name: str) -> bool:
    if INDEX.fullmatch(name.strip().lower()):
        return True
    values = [value for value in frame.column(name) if value is not None]
    if len(values) < 2 or not all(WHOLE.fullmatch(str(value).strip()) for value in values):
        return False
    numbers = {int(value) for value in values}
    return len(numbers) == len(values) == max(numbers) - min(numbers) + 1


def _is_number(frame: Frame, name: str) -> bool:
    try:
        return all(float(value) is not None for value in frame.column(name) if value is not None)
    except ValueError:
        return False


def _is_flag(values: Sequence[Any]) -> bool:
    there = {str(value).strip() for value in values if value is not None}
    return bool(there) and there.issubset(FLAGS)


def rows_of(
    frame: Frame, chosen: Chosen, answer: Callable[[Any], Any], *, several: bool = False
) -> tuple[list[Row], list[str]]:
    """The rows, and a description of each broken one: no text, or a label unknown to ``answer``.

    Where ``several`` labels may hold, ``answer`` gets a list of their names. Raises ``DataError``
    for lists as labels otherwise.
    """
    columns = [frame.column(name) for name in chosen.texts]
    labels = _several(frame, chosen) if several else frame.column(chosen.label)
    rows, broken = [], []
    for index, (number, label) in enumerate(zip(frame.numbers, labels, strict=True)):
        texts = [column[index] for column in columns]
        reason = frame.faults.get(index) or fault_of(texts, chosen.texts)
        value: Any = None
        if not reason:
            value = answer(label) if several else _value(frame, chosen.label, label, answer)
        if value is not None:
            rows.append(Row(tuple(texts), flags=value) if several else Row(tuple(texts), value))
        else:
            reason = reason or f"{shown((chosen.label,))} is {quoted(label)}"
            broken.append(f"{frame.unit} {number} ({reason})")
    if not rows and not broken:
        raise DataError(f"{frame.source} holds no rows")
    return rows, broken


def _several(frame: Frame, chosen: Chosen) -> list[Any]:
    """The names of each row's labels; what is no list of names stays as it is."""
    if chosen.flags:
        columns = [frame.column(name) for name in chosen.flags]
        return [_flagged(chosen.flags, row) for row in zip(*columns, strict=True)]
    column = frame.column(chosen.label)
    texts = [value for value in column if isinstance(value, str)]
    mark = next((mark for mark in MARKS if any(mark in text for text in texts)), None)
    return [_names_in(value, mark) for value in column]


def _flagged(flags: Sequence[str], row: Sequence[Any]) -> list[str] | str:
    """The names of the columns that hold a 1; where one holds neither 0 nor 1, that one."""
    written = [(name, str(value).strip()) for name, value in zip(flags, row, strict=True)]
    strange = [f"{name}={value}" for name, value in written if value not in FLAGS]
    return strange[0] if strange else [name for name, value in written if value in HELD]


def _names_in(value: Any, mark: str | None) -> Any:
    """A list as it is, and a text cut at ``mark``; no value is no label."""
    if value is None or value != value:
        return []
    if isinstance(value, list | tuple):
        named = all(isinstance(name, str | int) for name in value)
        return [str(name).strip() for name in value] if named else str(value)
    if isinstance(value, dict):
        return str(value)
    text = str(value).strip()
    if text.startswith("[") and text.endswith("]"):
        try:
            return _names_in(parse_json(text), mark)
        except ValueError:
            return text
    return [part for part in map(str.strip, text.split(mark or "|")) if part]


def _value(frame: Frame, name: str, label: Any, answer: Answer) -> int | float | None:
    if isinstance(label, list | tuple | dict):
        raise DataError(
            f"{frame.source}: column {quoted(name)} holds lists of labels: give "
            f"{option('answer', 'labels')} for several labels a row"
        )
    if label is None or label != label:
        return None
    try:
        return answer(str(label).strip())
    except ValueError:  # Python refuses to write a whole number of thousands of digits
        return None


def fault_of(texts: Sequence[Any], names: Sequence[str]) -> str:
    """Why a row's texts cannot be used; empty if they can."""
    for text, name in zip(texts, names, strict=True):
        if not isinstance(text, str):
            kind = "empty" if text is None else f"no text but {quoted(text)}"
            return f"{shown((name,))} is {kind}"
        if not text.strip():
            return f"{shown((name,))} is empty"
        try:
            text.encode()
        except UnicodeError:
            return f"{shown((name,))} is no valid Unicode"
    return ""


def require_single(source: str, labels: Sequence[str]) -> None:
    """Raise ``DataError`` for labels that name several classes, such as "a|b"."""
    known = set(labels)
    parts = Counter(part for label in labels for part in _parts(label, "|"))
    for label in labels:
        bars = _parts(label, "|")
        if (
            (label.startswith("[") and label.endswith("]") and "," in label)
            or (len(bars) > 1 and any(parts[part] > 1 for part in bars))
            or any(mark in label and known.issuperset(_parts(label, mark)) for mark in ",;")
        ):
            raise DataError(
                f"{source}: the label {quoted(label)} names several classes: give "
                f"{option('answer', 'labels')} for several labels a row"
            )


def _parts(label: str, mark: str) -> set[str]:
    return {part.strip() for part in label.split(mark)}


def in_order(labels: Sequence[str]) -> tuple[str, ...]:
    """The classes sorted, as numbers where all are whole numbers of at most 18 digits."""
    whole = all(WHOLE.fullmatch(label) for label in labels)
    return tuple(sorted(labels, key=int if whole else None))


def like(columns: Columns, chosen: Chosen) -> Columns:
    """The columns chosen for the training file, by name, for files with another order."""
    first, *rest = chosen.texts
    label = ",".join(chosen.flags) or chosen.label
    return replace(columns, text=first, pair=rest[0] if rest else "", label=label)
