"""Which columns of a file hold the texts, and which texts are refused: for every reader of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sparing.core.errors import UsageError, listed
from sparing.tasks._columns import PAIRS, TEXTS
from sparing.tasks._endings import ends_with
from sparing.tasks._frame import Frame

LABELS = ("label", "labels", "target")
KNOWN = {*TEXTS, *(name for pair in PAIRS for name in pair), *LABELS}
MOST_CHARACTERS = 1_000_000  # of one text
NAME_WORDS, NAME_CHARACTERS = 3, 40  # of the name of a column, at most


@dataclass(frozen=True)
class Named:
    """The columns that the caller named."""

    texts: tuple[str, ...]
    label: str | None

    def fits(self, first: Sequence[str]) -> bool:
        """Whether a table's first line has these columns, or a known name if none are named."""
        names = (*self.texts, *([self.label] if self.label else []))
        if names:
            return all(name in first for name in names)
        return any(name.strip().lower() in KNOWN for name in first)


def named_columns(columns: str | Sequence[str] | None, label: str | None) -> Named:
    """The named columns; raises ``UsageError`` for more than two, or one twice."""
    names = (columns,) if isinstance(columns, str) else tuple(columns or ())
    if len(names) > 2 or len(set(names)) < len(names):
        raise UsageError(f"columns are one name or two; got {listed(names)}")
    return Named(names, label)


def header_rule(path: Path, columns: Named, header: bool | None) -> Callable[[Sequence[str]], bool]:
    """What says whether the first line of a table names its columns; see ``read_texts``."""
    comma = ends_with(path, (".csv", ".csv.gz"))

    def is_header(first: Sequence[str]) -> bool:
        if header is not None:
            return header
        # a .tsv of one or two columns is often texts alone
        names_fit = comma or len(first) > 2
        return columns.fits(first) or (names_fit and all(map(_may_be_name, first)))

    return is_header


def _may_be_name(field: str) -> bool:
    words = field.split()
    short = 0 < len(words) <= NAME_WORDS and len(field) <= NAME_CHARACTERS
    return short and not field.strip().endswith((".", "!", "?")) and not field.strip().isdecimal()


def label_of(frame: Frame, columns: Named) -> str:
    """The column of the labels; empty where there is none."""
    if columns.label is not None:
        return columns.label
    free = [name for name in frame.names if name not in columns.texts]
    by_name = {name.strip().lower(): name for name in reversed(free)}
    return next((by_name[name] for name in LABELS if name in by_name), "")


def unreadable(row: Sequence[str]) -> str:
    """Why texts are refused: far too long, or with a null character; empty if they are not."""
    longest = max(map(len, row))
    if longest > MOST_CHARACTERS:
        return (
            f"has {longest:,} characters; at most {MOST_CHARACTERS:,} are read: is a quote left "
            "open?"
        )
    return "holds a null character" if any("\0" in text for text in row) else ""
