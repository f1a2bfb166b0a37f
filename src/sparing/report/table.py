"""Tables as data: a column is its head and how the cell of a row is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from sparing.report.blocks import Block

R = TypeVar("R")
"""What a row is about: a variant, a record, a group of records."""


@dataclass(frozen=True)
class Column(Generic[R]):
    """One column: its head, and the text of its cell for what a row is about."""

    head: str
    cell: Callable[[R], str]


def table(
    key: str, title: str, explain: str, rows: Iterable[R], columns: Sequence[Column[R]]
) -> Block:
    """A block with a row for each of ``rows``; a block without rows is its explanation alone."""
    cells = tuple(tuple(column.cell(row) for column in columns) for row in rows)
    return Block(key, title, explain, tuple(column.head for column in columns), cells)
