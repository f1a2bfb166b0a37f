"""A file of rows that is read in order: what all formats have in common."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparing.core.errors import option
from sparing.tasks._columns import fault_of, require_columns, shown, text_names
from sparing.tasks._frame import Frame
from sparing.tasks.texts.naming import Named, label_of, unreadable

LOGGER = logging.getLogger(__name__)
SAMPLE = 1000  # rows that decide which columns are the texts
LONGEST = 2**24  # characters of one line, or of one record of a table
MARK = "\udc80"  # in the place of bytes that are no text


@dataclass(frozen=True)
class StreamedRow:
    """One row: its texts, and the values of further columns. With a ``fault`` it has no texts."""

    texts: tuple[str, ...]
    more: tuple[Any, ...] = ()
    fault: str = ""


@dataclass(frozen=True)
class Chosen:
    """The columns of the texts (one or two), and further ones to copy."""

    texts: tuple[str, ...]
    more: tuple[str, ...] = ()


class Cursor(ABC):
    """A position in a file; ``share`` is how much of its bytes has been read."""

    share: float = 0.0

    @abstractmethod
    def take(self, count: int) -> list[StreamedRow]:
        """The next rows: fewer than ``count`` only at the end of the file."""

    @abstractmethod
    def skip(self, count: int) -> int:
        """Pass over rows, cheaper than reading them; how many there were."""


class RowFile(ABC):
    """A file of rows. ``names`` are its columns, ``count`` its rows where that is known."""

    def __init__(self, path: Path) -> None:
        self.path, self.size = path, path.stat().st_size
        self.names: tuple[str, ...] = ()
        self.count: int | None = None

    @abstractmethod
    def frame(self) -> Frame:
        """The first rows, to choose columns by."""

    @abstractmethod
    def cursor(self, chosen: Chosen) -> Cursor:
        """A position before the first row."""

    def types(self, names: Sequence[str]) -> list[Any]:
        """The arrow types of columns; those of text files are texts."""
        import pyarrow  # type: ignore[import-untyped]

        return [pyarrow.string()] * len(names)

    def choose(self, columns: Named, more: Sequence[str]) -> Chosen:
        """The columns of the texts: the named ones, else by the rule of ``read_texts``.

        The rule sees the first 1,000 rows. Raises ``DataError`` where the choice is not clear.
        """
        frame = self.frame()
        how = option("columns", "NAME,NAME")
        texts = columns.texts or text_names(frame, (label_of(frame, columns),), how)
        copied = f"; copied: {shown(more)}" if more else ""
        LOGGER.info("%s: texts: %s%s", self.path, shown(texts), copied)
        return Chosen(tuple(texts), tuple(more))

    def require(self, chosen: Chosen) -> None:
        """Raise ``DataError`` unless the file has these columns; one without rows may lack them."""
        if self.count == 0 and not self.names:
            return
        frame = Frame(str(self.path), self.names, (), lambda name: [], range(0))
        require_columns(frame, (*chosen.texts, *chosen.more))


def checked_row(texts: Sequence[Any], more: Sequence[Any], names: Sequence[str]) -> StreamedRow:
    """A row of these values; a text that cannot be used is its fault."""
    fault = fault_of(texts, names)
    if not fault and (reason := unreadable(texts)):
        fault = f"the text {reason}"
    return StreamedRow(() if fault else tuple(texts), tuple(more), fault)
