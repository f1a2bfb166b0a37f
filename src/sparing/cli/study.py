"""``sparing study NAME``: any study of the folder, within a budget."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Annotated, Any

import typer

from sparing.cli._finish import finish_study
from sparing.cli._plan import show_plan
from sparing.cli._shared import Json, progress_bar, verb
from sparing.core.errors import UsageError, option_form
from sparing.core.paths import expanded


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
    module = _study(name, budget)
    options = apply(module.BUDGETS[budget], settings or [])
    place = output_dir or Path("runs") / f"{name}-{budget}"
    pieces = _pieces(module, name, cells, minutes)
    if plan:
        _show(module, name, options, place, data, cells, as_json)
        return
    form = "--set task_options.{}" if hasattr(options, "task") else "--set task_options.TASK.{}"
    with option_form(form), progress_bar(quiet=as_json) as show:
        result = module.run(
            options, place, data=data, on_progress=show, overwrite=overwrite, **pieces
        )
    finish_study(result, as_json)


def _study(name: str, budget: str) -> Any:
    """The study's module, which has that budget."""
    from sparing.core.errors import nearest
    from sparing.experiment.registry import find_study

    module = find_study(name).load()
    if budget not in module.BUDGETS:
        raise UsageError(f"{name} has no budget {budget!r}{nearest(budget, module.BUDGETS)}")
    return module


def _pieces(module: Any, name: str, cells: str, minutes: float | None) -> dict[str, Any]:
    """What is to be run of the whole; ``UsageError`` for a study that runs in one piece."""
    given = {"cells": cells} if cells != "*" else {}
    asked: dict[str, Any] = {**given, **({} if minutes is None else {"minutes": minutes})}
    known = inspect.signature(module.run).parameters
    for option in asked:
        if option not in known:
            raise UsageError(
                f"{name} has no --{option}: stop it with Ctrl-C, it goes on from there"
            )
    return asked


def _show(
    module: Any,
    name: str,
    options: Any,
    place: Path,
    data: Path | None,
    cells: str,
    as_json: bool,
) -> None:
    """The cells and about how long they take."""
    if not hasattr(module, "plan"):
        raise UsageError(f"{name} tells no plan; its cells are kept as they finish")
    show_plan(module.plan(options, place, data=data).only(cells), as_json)
