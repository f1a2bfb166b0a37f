"""How a verb that ran a study ends: its page, its goals, its exit code."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from sparing.cli._endings import CELLS_FAILED, GOAL_MISSED, say
from sparing.cli._shared import emit

if TYPE_CHECKING:
    from sparing.studies._study import StudyResult


def finish_study(result: StudyResult, as_json: bool) -> None:
    """Write the page, print goals and place, and leave with what they call for."""
    from sparing.report import write_report

    pages = write_report(result.folder)
    if as_json:
        emit({**result.to_dict(), "pages": {name: str(path) for name, path in pages.items()}})
    else:
        _print(result)
        print(f"\nThe page: {pages['html']}")
    for failure in result.failures:
        say(f"cell {failure.cell} failed: {failure.error}")
    if result.failures:
        raise typer.Exit(CELLS_FAILED)
    if any(goal.required and goal.met is not True for goal in result.goals):
        raise typer.Exit(GOAL_MISSED)


def _print(result: StudyResult) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("goal", "target", "value", "interval", "met", box=None)
    for goal in result.goals:
        value = "not measured" if goal.value is None else f"{goal.value:.3f}"
        interval = f"{goal.interval[0]:.3f} to {goal.interval[1]:.3f}" if goal.interval else ""
        met = goal.met if isinstance(goal.met, str) else "yes" if goal.met else "no"
        table.add_row(goal.name, f"{goal.target:g} {goal.unit}", value, interval, met)
    Console().print(table)
