"""What verbs that run a study print: its plan before, and answer, page and goals at the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from sparing.cli.shared.common import emit
from sparing.cli.shared.endings import CELLS_FAILED, GOAL_MISSED, say

if TYPE_CHECKING:
    from sparing.experiment.forecasts.effects import Effect
    from sparing.experiment.plan import Plan
    from sparing.experiment.study import StudyResult

SHOWN_EFFECTS = 20


def show_plan(plan: Plan, as_json: bool) -> None:
    """Print the steps and how long they take."""
    if as_json:
        emit(plan.to_dict())
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("step (runs)", "done", "minutes left", "longest run", box=None)
    for column in table.columns[1:]:
        column.justify = "right"
    for key, cells in plan.groups().items():
        left = [cell.minutes for cell in cells if not cell.done]
        done = str(len(cells) - len(left))
        longest = f"{max(left):.1f}" if left else ""
        table.add_row(f"{key} ({len(cells)})", done, f"{sum(left):.1f}", longest)
    Console().print(table)
    for note in plan.notes:
        print(note)
    for reason in dict.fromkeys(cell.idle for cell in plan.cells if cell.idle):
        count = sum(cell.idle == reason for cell in plan.cells)
        print(f"{count} cells are skipped, since little can be decided there: {reason}")
    _show_effects(plan.effects)
    import torch

    worker = "the accelerator" if torch.accelerator.is_available() else "one core"
    minutes = plan.minutes_left
    amount = f"{minutes / 60:.1f} hours" if minutes >= 60 else f"{minutes:.0f} minutes"
    print(f"about {amount} of {worker} left; estimated by {plan.basis}")


def _show_effects(effects: Sequence[Effect]) -> None:
    """Print the smallest effects that the planned seeds could decide, the smallest first."""
    if not effects:
        return
    print("smallest effects that the planned seeds decide, by the spread in committed runs:")
    for effect in sorted(effects, key=lambda effect: effect.effect)[:SHOWN_EFFECTS]:
        points = effect.unit in ("share", "score")
        amount = f"{100 * effect.effect:.2g} points" if points else f"{effect.effect:.2g}"
        seeds = f"{effect.seeds} seeds, {effect.known} in {effect.source}"
        print(f"  {amount} ({seeds}): {effect.goal}")
    if len(effects) > SHOWN_EFFECTS:
        print(f"  and of {len(effects) - SHOWN_EFFECTS} goals more: see --json")


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
