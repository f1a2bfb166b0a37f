"""Reports: a page, a Markdown file and figures as pure functions of records; never measures."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparing.report.answer import answer_of as answer_of
    from sparing.report.page import table_html as table_html
    from sparing.report.page import write_report as write_report
    from sparing.report.tables import table_columns as table_columns
    from sparing.report.tables import table_rows as table_rows
    from sparing.report.verdict import decide as decide

_HOMES = {
    "answer_of": ("sparing.report.answer", "answer_of"),
    "decide": ("sparing.report.verdict", "decide"),
    "table_columns": ("sparing.report.tables", "table_columns"),
    "table_html": ("sparing.report.page", "table_html"),
    "table_rows": ("sparing.report.tables", "table_rows"),
    "write_report": ("sparing.report.page", "write_report"),
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'sparing.report' has no attribute {name!r}")
    home, attribute = _HOMES[name]
    return getattr(importlib.import_module(home), attribute)
