"""Tables: lines of fields with a separator between them."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from sparing.core.errors import DataError
from sparing.tasks._frame import Frame, TableForm, object_frame, table_form
from sparing.tasks.shared.table import fields_of_any_size
from sparing.tasks.texts.naming import Named, header_rule
from sparing.tasks.texts.streams.base import LONGEST, MARK, Chosen, StreamedRow, checked_row
from sparing.tasks.texts.streams.text import (
    AT_ONCE,
    TOO_LONG,
    ReportingFile,
    TextFile,
    columns_counted,
)


class TableFile(TextFile):
    """Lines of fields with a separator between; quotes are read as in csv, or are literal."""

    newline = ""

    def __init__(self, path: Path, encoding: str, columns: Named, header: bool | None) -> None:
        super().__init__(path, encoding)
        rule = header_rule(path, columns, header)
        self.form = TableForm("\t", False, (), False)
        if self.head.strip():
            self.form = table_form(path, self.head.replace("\r\n", "\n"), rule, columns.fits)
        self.names = self.form.names

    def frame(self) -> Frame:
        """The first rows, to choose columns by."""
        rows = [fields for fields in self.sample() if len(fields) == len(self.names)]
        columns = zip(*rows, strict=True) if rows else [[] for _ in self.names]
        by_name = dict(zip(self.names, map(list, columns), strict=True))
        whole = object_frame(str(self.path), by_name)
        return Frame(whole.source, self.names, self.names, whole.column, whole.numbers)

    def records(self, report: Callable[[float], None]) -> Iterator[list[str] | str]:
        """The rows of the file, unread."""
        with self.open(report) as file:
            rows = self._quoted(file) if self.form.quotes else self._plain(file)
            yield from islice(rows, 1 if self.form.header else 0, None)

    def _plain(self, file: ReportingFile) -> Iterator[list[str] | str]:
        for line in file.lines():
            if line is None:
                yield TOO_LONG
            else:
                yield line.rstrip("\r\n").split(self.form.separator)

    def _quoted(self, file: ReportingFile) -> Iterator[list[str] | str]:
        """Records of csv, or their faults: reading goes on with the line after a broken one.

        The size of a field is a setting of the whole process, so that it is lifted for some rows
        at a time and not while others work.
        """
        fed = 0

        def lines() -> Iterator[str]:
            nonlocal fed
            for line in file.lines():
                fed += LONGEST + 1 if line is None else len(line)
                if fed > LONGEST:
                    raise DataError(
                        f"{self.path}: a row near line {reader.line_num:,} has more than "
                        f"{LONGEST:,} characters: is a quote left open?"
                    )
                yield line or ""

        def one() -> list[str] | str | None:
            nonlocal fed
            fed = 0
            try:
                return next(reader, None)
            except csv.Error as error:
                return f"the line is not csv: {error}"

        reader = csv.reader(lines(), strict=True, delimiter=self.form.separator)
        while True:
            with fields_of_any_size():
                rows: list[list[str] | str] = list(islice(iter(one, None), AT_ONCE))
            yield from rows
            if len(rows) < AT_ONCE:
                return

    def reader(self, chosen: Chosen) -> Callable[[list[str] | str], StreamedRow]:
        """What makes an unread record a row."""
        if not self.names:
            return lambda fields: StreamedRow((), (None,) * len(chosen.more), "the line is empty")
        text_at = [self.names.index(name) for name in chosen.texts]
        more_at = [self.names.index(name) for name in chosen.more]

        def read(fields: list[str] | str) -> StreamedRow:
            if fields in ([], [""]):
                fields = "the line is empty"
            fault = fields if isinstance(fields, str) else ""
            if not fault and len(fields) != len(self.names):
                fault = f"{columns_counted(len(fields))}, not {len(self.names)}"
            if fault:
                return StreamedRow((), (None,) * len(more_at), fault)
            more = [None if MARK in fields[at] else fields[at] for at in more_at]
            texts = [fields[at] for at in text_at]
            if any(MARK in text for text in texts):
                return StreamedRow((), tuple(more), f"the line {self.no_text()}")
            return checked_row(texts, more, chosen.texts)

        return read
