"""Files of text, line by line: one text a line, or one JSON object."""

from __future__ import annotations

import codecs
import io
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, cast

from sparing.core.errors import DataError, UsageError, quoted
from sparing.core.reading import parse_json
from sparing.tasks._frame import SNIFFED_CHARACTERS, Frame, object_frame
from sparing.tasks.shared.files import is_packed, opened
from sparing.tasks.shared.table import UTF_8
from sparing.tasks.texts.naming import Named
from sparing.tasks.texts.streams.base import (
    LONGEST,
    MARK,
    SAMPLE,
    Chosen,
    Cursor,
    RowFile,
    StreamedRow,
    checked_row,
)

AT_ONCE = 256  # lines between two reports of the position
TOO_LONG = f"the line has more than {LONGEST:,} characters"
_MARKING = "sparing-mark"
codecs.register_error(_MARKING, lambda error: (MARK, getattr(error, "end", 0)))


class TextFile(RowFile):
    """A file of text in an encoding."""

    newline: ClassVar[str | None] = "\n"

    def __init__(self, path: Path, encoding: str) -> None:
        super().__init__(path)
        self.encoding = encoding
        with self.open(lambda share: None) as file:
            self.head = file.read(SNIFFED_CHARACTERS)
        if not self.head:
            self.count = 0

    @contextmanager
    def open(self, report: Callable[[float], None]) -> Iterator[ReportingFile]:
        """The file to read in text; ``report`` receives the share of bytes that was read."""
        with opened(self.path) as binary:
            raw = binary.fileobj if is_packed(self.path) else binary  # type: ignore[attr-defined]
            text = io.TextIOWrapper(
                cast(Any, binary), self.encoding, _MARKING, newline=self.newline
            )
            with text:
                yield ReportingFile(text, lambda: report(raw.tell() / max(1, self.size)))

    def no_text(self) -> str:
        """The fault of a row with bytes that are no text."""
        return f"is no {'UTF-8' if self.encoding == UTF_8 else self.encoding} text"

    @abstractmethod
    def records(self, report: Callable[[float], None]) -> Iterator[Any]:
        """The rows of the file, unread."""

    @abstractmethod
    def reader(self, chosen: Chosen) -> Callable[[Any], StreamedRow]:
        """What makes an unread record a row."""

    def cursor(self, chosen: Chosen) -> Cursor:
        """A position before the first row."""
        return _TextCursor(self, self.reader(chosen))

    def sample(self) -> list[Any]:
        """The first unread records."""
        return list(islice(self.records(lambda share: None), SAMPLE))


class ReportingFile:
    """A text file that reports its position now and then."""

    def __init__(self, file: io.TextIOBase, report: Callable[[], None]) -> None:
        self.file, self.report = file, report
        self.lines_read = 0

    def read(self, count: int) -> str:
        """The next characters."""
        return self.file.read(count)

    def lines(self) -> Iterator[str | None]:
        """Lines with their ends; None for one that is far too long; its rest is passed over."""
        while line := self.file.readline(LONGEST):
            self.lines_read += 1
            if self.lines_read % AT_ONCE == 1:
                self.report()
            if len(line) < LONGEST or line.endswith(("\n", "\r")):
                yield line
                continue
            while line and not line.endswith(("\n", "\r")):
                line = self.file.readline(LONGEST)
            yield None
        self.report()


class _TextCursor(Cursor):
    def __init__(self, file: TextFile, read: Callable[[Any], StreamedRow]) -> None:
        self._read = read
        self._records = file.records(self._report)

    def _report(self, share: float) -> None:
        self.share = share

    def take(self, count: int) -> list[StreamedRow]:
        """The next rows."""
        return [self._read(record) for record in islice(self._records, count)]

    def skip(self, count: int) -> int:
        """Pass over rows."""
        return sum(1 for _ in islice(self._records, count))


class LineFile(TextFile):
    """One text a line; two with a tab between them where all of the first lines have them."""

    newline = None

    def __init__(self, path: Path, encoding: str, columns: Named) -> None:
        super().__init__(path, encoding)
        parts = [(line or "").rstrip("\n").split("\t") for line in self.sample()]
        filled = [part for part in parts if part != [""]]
        pairs = all(len(part) == 2 and all(map(str.strip, part)) for part in filled)
        self.names = ("1", "2") if filled and pairs else ("1",)
        if columns.texts and len(self.names) == 1:
            raise UsageError(f"{path} has one text a line and no columns: give a .csv or .tsv")

    def frame(self) -> Frame:
        """The first rows, to choose columns by."""
        return object_frame(str(self.path), {name: ["text"] for name in self.names})

    def records(self, report: Callable[[float], None]) -> Iterator[str | None]:
        """The rows of the file, unread."""
        with self.open(report) as file:
            yield from file.lines()

    def reader(self, chosen: Chosen) -> Callable[[str | None], StreamedRow]:
        """What makes an unread record a row."""
        pairs = len(self.names) == 2

        def read(line: str | None) -> StreamedRow:
            if line is None:
                return StreamedRow((), fault=TOO_LONG)
            line = line.rstrip("\n")
            texts = line.split("\t") if pairs and line else [line]
            if pairs and len(texts) != 2:
                return StreamedRow((), fault=f"{columns_counted(len(texts))}, not 2")
            values = texts if len(chosen.texts) != 1 else [texts[int(chosen.texts[0]) - 1]]
            return self._checked(line, values)

        return read

    def _checked(self, line: str, texts: Sequence[str]) -> StreamedRow:
        if MARK in line:
            return StreamedRow((), fault=f"the line {self.no_text()}")
        names = ("the text",) * len(texts)
        return checked_row(texts, (), names)


class JsonFile(TextFile):
    """One JSON object a line."""

    def __init__(self, path: Path, encoding: str) -> None:
        super().__init__(path, encoding)
        if self.head.lstrip().startswith("["):
            raise DataError(f"{path} is one list of objects: write one object a line (.jsonl)")
        rows = [row for row in map(self._object, self.sample()) if isinstance(row, dict)]
        self.names = tuple(dict.fromkeys(name for row in rows for name in row))

    def frame(self) -> Frame:
        """The first rows, to choose columns by."""
        rows = [row for row in map(self._object, self.sample()) if isinstance(row, dict)]
        return object_frame(
            str(self.path), {name: [row.get(name) for row in rows] for name in self.names}
        )

    def records(self, report: Callable[[float], None]) -> Iterator[str | None]:
        """The rows of the file, unread."""
        with self.open(report) as file:
            yield from file.lines()

    def _object(self, line: str | None) -> dict[str, Any] | str:
        """The object of a line, or its fault."""
        if line is None:
            return TOO_LONG
        if MARK in line:
            return f"the line {self.no_text()}"
        if not line.strip():
            return "the line is empty"
        try:
            row = parse_json(line, finite=False)
        except ValueError as error:
            return f"the line is no JSON ({quoted(str(error), 80)[1:-1]})"
        return row if isinstance(row, dict) else "the line is not a JSON object of columns"

    def reader(self, chosen: Chosen) -> Callable[[str | None], StreamedRow]:
        """What makes an unread record a row."""

        def read(line: str | None) -> StreamedRow:
            row = self._object(line)
            if isinstance(row, str):
                return StreamedRow((), (None,) * len(chosen.more), row)
            texts = [row.get(name) for name in chosen.texts]
            return checked_row(texts, [row.get(name) for name in chosen.more], chosen.texts)

        return read


def columns_counted(count: int) -> str:
    """So many columns, in words."""
    return f"{count} column" if count == 1 else f"{count} columns"
