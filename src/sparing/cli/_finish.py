"""The end of a verb that ran a study: answer, page, goals and exit code."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from sparing.cli._endings import CELLS_FAILED, GOAL_MISSED, say
from sparing.cli._shared import emit

if TYPE_CHECKING:
    from sparing.experiment.study import StudyResult


def finish_study(result: StudyResult, as_json: bool) -> None:
    """Write the page, print answer, goals and folders, and exit with the matching code."""
    from sparing.outcome import finish

    outcome = finish(result)
    if as_json:
        emit(outcome.to_dict())
    else:
        answer = [outcome.answer, ""] if outcome.answer else []
        busy = [result.disturbance] if result.disturbance else []
        print(*busy, *answer, *result.goal_lines(), "", *outcome.places(), sep="\n")
    for failure in result.failures:
        say(f"cell {failure.cell} failed: {failure.error}")
    if result.failures:
        raise typer.Exit(CELLS_FAILED)
    if any(goal.required and goal.met is not True for goal in result.goals):
        raise typer.Exit(GOAL_MISSED)
