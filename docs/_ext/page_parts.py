"""Cells, tables and prose of generated pages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Protocol

from sparing.report.markdown import escape

DASH = "\N{EN DASH}"
UNBROKEN_DASH = f"\N{WORD JOINER}{DASH}\N{WORD JOINER}"  # an interval stays on one line
TIMES = "\N{MULTIPLICATION SIGN}"
Row = list[str]


class Quartiles(Protocol):
    """A median with its quartiles."""

    middle: float
    low: float
    high: float


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def prose(text: str) -> str:
    """Docstring text as Markdown: names in double backticks become code, the rest is plain."""
    parts = re.split(r"``(.+?)``", " ".join(text.split()))
    return "".join(f"`{part}`" if index % 2 else _escaped(part) for index, part in enumerate(parts))


def _escaped(text: str) -> str:
    """Escaped text with the blanks at its ends kept."""
    before, after = text[:1].isspace(), text[-1:].isspace()
    return " " * before + escape(text) + " " * (after and bool(text.strip()))


def spread(value: Quartiles | None) -> str:
    """A ratio with its quartiles."""
    if value is None:
        return DASH
    interval = f"[{plain(value.low)}{UNBROKEN_DASH}{plain(value.high)}]"
    return f"{plain(value.middle)}{TIMES} {interval}"


def number(value: float | None, unit: str = "") -> str:
    """A number with its unit, or a dash."""
    return DASH if value is None else f"{plain(value)}{unit}"


def plain(value: float) -> str:
    """Two decimals below 10, one below 100, none from there on."""
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def share(value: float | None) -> str:
    """A share in percent."""
    return DASH if value is None else f"{100 * value:.0f} %"
