"""The parts of the comparison table: columns, cells and rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

Tone = Literal["gain", "loss", "neutral", "missing"]
Failed = Sequence[dict[str, Any]]


@dataclass(frozen=True)
class Column:
    """One column: its key in ``Row.cells``, its title, and at which size it was taken."""

    key: str
    title: str
    note: str = ""


@dataclass(frozen=True)
class Cell:
    """One cell: its text, the lines under it, and the number and interval behind it.

    ``value`` is the number of the column's kind: a share, a difference of shares, a ratio to the
    baseline, tokens; None where nothing was measured. ``tone`` says whether it is a gain for the
    variant, ``obtained`` how it was obtained.
    """

    text: str
    notes: tuple[str, ...] = ()
    tone: Tone = "neutral"
    value: float | None = None
    interval: tuple[float, float] | None = None
    obtained: str = ""


@dataclass(frozen=True)
class Row:
    """One variant: its name, whether it is the baseline, a note, and its cells by column key.

    ``family`` and ``beaten_by`` (variants at least as accurate and as fast) are filled where a run
    has many variants, else empty.
    """

    arm: str
    baseline: bool
    note: str
    cells: dict[str, Cell]
    family: str = ""
    beaten_by: str = ""
