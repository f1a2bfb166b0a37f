"""The parts of the comparison table, and what stands in a cell that is empty."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sparing.report.results import Results

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

    ``value`` is the number in the column's own sense (a share, a difference of shares, a ratio to
    the baseline, tokens), None where nothing was measured; ``tone`` says whether it speaks for the
    arm; ``obtained`` how the number came about.
    """

    text: str
    notes: tuple[str, ...] = ()
    tone: Tone = "neutral"
    value: float | None = None
    interval: tuple[float, float] | None = None
    obtained: str = ""


@dataclass(frozen=True)
class Row:
    """One arm: its name, whether it is the baseline, a note, and its cells by column key.

    ``family`` and ``beaten_by`` (arms at least as accurate and as fast) are filled where a run has
    many arms, else empty.
    """

    arm: str
    baseline: bool
    note: str
    cells: dict[str, Cell]
    family: str = ""
    beaten_by: str = ""


def arm_failed(arm: str, failed: Failed) -> bool:
    """Whether a cell of this arm ended in an error."""
    return any(_cell_names(entry.get("cell"), arm) for entry in failed)


def _cell_names(cell: object, arm: str) -> bool:
    if isinstance(cell, dict):
        return cell.get("arm") == arm
    separated = str(cell)
    for separator in "/:;,=| ":
        separated = separated.replace(separator, "\0")
    return arm in separated.split("\0")


def missing_cell(results: Results, arm: str, failed: Failed, *names: str) -> Cell:
    """An empty cell that says why: the record's own reason, a failure, or not reached."""
    empty = next((r for name in names if (r := results.empty(name, arm=arm))), None)
    if empty is not None and empty.labels.get("reason"):
        reason = str(empty.labels["reason"])
    elif empty is not None:
        reason = "the measurement gave no number"
    elif arm_failed(arm, failed):
        reason = "failed, see below"
    elif any(results.all(name) for name in names):
        reason = "not reached yet"
    else:
        reason = "not part of this run so far"
    return Cell("not measured", (reason,), "missing")
