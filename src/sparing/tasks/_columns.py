"""Which columns of your own rows are the texts, which is the label, and which are left out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from sparing.core.errors import DataError, listed, nearest, option, quoted
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
FLAGS = ("0", "1", "0.0", "1.0", "True", "False", "true", "false")


@dataclass(frozen=True)
class Columns:
    """The requested columns; "" means that the file's own names decide."""

    text: str
    pair: str
    label: str
    header: bool
    answer: Literal["class", "number"]
    skip_broken: bool
    encoding: str

    def fits(self, first: Sequence[str]) -> bool:
        """Whether a table's first line was split at the right separator, as far as it shows."""
        return self.label in first if self.header else len(first) > 1


@dataclass(frozen=True)
class Chosen:
    """The columns that are used, and those that are not."""

    texts: tuple[str, ...]
    label: str
    left_out: tuple[str, ...]

    @property
    def note(self) -> str:
        """The used columns, in words."""
        left = f"; left out: {shown(self.left_out)}" if self.left_out else ""
        return f"texts: {shown(self.texts)}; label: {shown((self.label,))}{left}"


def shown(names: Sequence[str]) -> str:
    """Names of columns for a message."""
    return listed([name.strip() or "(no name)" for name in names], 8)


def choose(frame: Frame, columns: Columns) -> Chosen:
    """The columns of the texts and of the label.

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
    if label not in names:
        raise DataError(_no_label(frame, columns))
    if columns.text:
        texts = tuple(name for name in (columns.text, columns.pair) if name)
    else:
        how = f"{option('text', 'NAME')} (and {option('pair', 'NAME')})"
        texts = text_names(frame, label, how)
    require_columns(frame, (*texts, label))
    return Chosen(texts, label, tuple(name for name in names if name not in (*texts, label)))


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
            f"{frame.source}: the columns {listed(flags)} hold 0 and 1: several labels a row "
            f"(multi-label) are not supported yet; take one with {option('label', 'NAME')}"
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


def text_names(frame: Frame, label: str, how: str) -> tuple[str, ...]:
    """The columns of the texts, by the rule of ``choose``; ``how`` says how to name them."""
    names = [name for name in frame.texts if name != label and not _is_index(frame, name)]
    names = [name for name in names if not _is_number(frame, name)] or names
    by_name = {name.strip().lower(): name for name in reversed(names)}
    for known in (*PAIRS, *((name,) for name in TEXTS)):
        if all(name in by_name for name in known):
            return tuple(by_name[name] for name in known)
    if len(names) in (1, 2):
        return tuple(names)
    rest = names or [name for name in frame.names if name != label]
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


def rows_of(frame: Frame, chosen: Chosen, answer: Answer) -> tuple[list[Row], list[str]]:
    """The rows, and a description of each broken one: no text, or a label unknown to ``answer``.

    Raises ``DataError`` for lists as labels.
    """
    columns, labels = [frame.column(name) for name in chosen.texts], frame.column(chosen.label)
    rows, broken = [], []
    for index, (number, label) in enumerate(zip(frame.numbers, labels, strict=True)):
        texts = [column[index] for column in columns]
        reason = frame.faults.get(index) or fault_of(texts, chosen.texts)
        value = None if reason else _value(frame, chosen.label, label, answer)
        if value is not None:
            rows.append(Row(tuple(texts), value))
        else:
            reason = reason or f"{shown((chosen.label,))} is {quoted(label)}"
            broken.append(f"{frame.unit} {number} ({reason})")
    if not rows and not broken:
        raise DataError(f"{frame.source} holds no rows")
    return rows, broken


def _value(frame: Frame, name: str, label: Any, answer: Answer) -> int | float | None:
    if isinstance(label, list | tuple | dict):
        raise DataError(
            f"{frame.source}: column {quoted(name)} holds lists of labels: several labels a row "
            "(multi-label) are not supported yet"
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
                f"{source}: the label {quoted(label)} names several classes: several labels a row "
                "(multi-label) are not supported yet"
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
    return replace(columns, text=first, pair=rest[0] if rest else "", label=chosen.label)
