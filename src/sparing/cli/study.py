"""``sparing study NAME``: any study of the folder, within a budget."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sparing.cli._finish import finish_study
from sparing.cli._plan import show_plan
from sparing.cli._shared import Json, progress_bar, verb
from sparing.core.errors import UsageError, option_form
from sparing.core.paths import expanded

if TYPE_CHECKING:
    from sparing.experiment.registry import Study


@verb
def run(
    name: Annotated[str, typer.Argument(help="A study, such as compare.")],
    budget: Annotated[str, typer.Option(help="quick, standard or a study's own.")] = "quick",
    data: Annotated[Path | None, typer.Option(help="Folder of the tasks' data.")] = None,
    output_dir: Annotated[Path | None, typer.Option(help="Default: runs/NAME-BUDGET.")] = None,
    overwrite: Annotated[bool, typer.Option(help="Begin again, dropping what is there.")] = False,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="path=value, such as recipe.epochs=5.")
    ] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Show the cells and about how long they take; run none.")
    ] = False,
    cells: Annotated[
        str, typer.Option(help="Only cells whose key fits this pattern, such as 'sst2/*'.")
    ] = "*",
    minutes: Annotated[
        float | None, typer.Option(min=0, help="Begin no cell after so many minutes.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Run a study and print its goals: name, target, value, interval, met."""
    from sparing.cli._settings import apply

    if data is not None and not expanded(data).is_dir():
        raise UsageError(f"the data folder {data} does not exist")
    study = _study(name, budget)
    options = apply(study.budgets[budget], settings or [])
    folder = output_dir or Path("runs") / f"{name}-{budget}"
    shard = _shard(study, cells, minutes)
    if plan:
        show_plan(study.plan(options, folder, data=data).only(cells), as_json)
        return
    form = "--set task_options.{}" if hasattr(options, "task") else "--set task_options.TASK.{}"
    with option_form(form), progress_bar(quiet=as_json) as show:
        result = study.run(
            options, folder, data=data, on_progress=show, overwrite=overwrite, **shard
        )
    finish_study(result, as_json)


def _study(name: str, budget: str) -> Study:
    """The study of that name, which has that budget."""
    from sparing.core.errors import nearest
    from sparing.experiment.registry import find_study

    study = find_study(name)
    if budget not in study.budgets:
        raise UsageError(f"{name} has no budget {budget!r}{nearest(budget, study.budgets)}")
    return study


def _shard(study: Study, cells: str, minutes: float | None) -> dict[str, Any]:
    """What is to be run of the whole; ``UsageError`` for a study that is run whole."""
    chosen = {} if cells == "*" else {"cells": cells}
    shard: dict[str, Any] = chosen if minutes is None else chosen | {"minutes": minutes}
    if shard and not study.shards:
        option = next(iter(shard))
        raise UsageError(
            f"{study.name} has no --{option}: stop it with Ctrl-C, it goes on from there"
        )
    return shard
