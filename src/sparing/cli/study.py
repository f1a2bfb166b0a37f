"""``sparing study NAME``: any study of the folder, within a budget."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sparing.cli._finish import finish_study
from sparing.cli._shared import Json, progress_bar, verb


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
    as_json: Json = False,
) -> None:
    """Run a study and print its goals: name, target, value, interval, met."""
    from sparing.cli._settings import apply
    from sparing.core.errors import UsageError, nearest
    from sparing.core.folder import Folder

    folder = Folder("sparing.studies", "study")
    module = folder.load(name)
    if not hasattr(module, "BUDGETS"):
        raise UsageError(f"{name} is not run by budget; see sparing {name} --help")
    if budget not in module.BUDGETS:
        raise UsageError(f"{name} has no budget {budget!r}{nearest(budget, module.BUDGETS)}")
    options = apply(module.BUDGETS[budget], settings or [])
    place = output_dir or Path("runs") / f"{name}-{budget}"
    with progress_bar(quiet=as_json) as show:
        result = module.run(options, place, data=data, on_progress=show, overwrite=overwrite)
    finish_study(result, as_json)
