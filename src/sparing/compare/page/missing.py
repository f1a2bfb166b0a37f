"""What stands in a cell of the comparison table that is empty."""

from __future__ import annotations

from sparing.compare.page.results import Results
from sparing.report.cells import Cell, Failed


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
