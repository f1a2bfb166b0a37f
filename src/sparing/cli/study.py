"""``sparing study NAME``: any installed study, with one of its budgets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sparing.cli.shared.common import (
    Address,
    Data,
    Engine,
    Json,
    Overwrite,
    Plan,
    Processes,
    progress_bar,
    verb,
)
from sparing.cli.shared.runs import finish_study, show_plan
from sparing.core.errors import UsageError, option_form
from sparing.core.folder import IMPORTED
from sparing.core.paths import expanded

if TYPE_CHECKING:
    from sparing.experiment.registry import Study

EXAMPLE = "sparing study compare --budget quick --plan"
Settings = Annotated[
    list[str] | None, typer.Option("--set", help="path=value, such as recipe.epochs=5.")
]
Cells = Annotated[
    str,
    typer.Option(help="Run only cells that match a pattern, such as 'sst2/*', or a share: 3/8."),
]
Minutes = Annotated[float | None, typer.Option(min=0, help="Start no cell after so many minutes.")]
JobArray = Annotated[
    int, typer.Option(min=0, help="Write a script of so many SLURM jobs; run nothing.")
]


@verb
def run(
    name: Annotated[str, typer.Argument(help="A name from sparing list studies.")],
    budget: Annotated[str, typer.Option(help="quick, standard or another budget.")] = "quick",
    data: Data = None,
    output_dir: Annotated[Path | None, typer.Option(help="Default: runs/NAME-BUDGET.")] = None,
    overwrite: Overwrite = False,
    settings: Settings = None,
    plan: Plan = False,
    cells: Cells = "*",
    minutes: Minutes = None,
    engine: Engine = "local",
    processes: Processes = 0,
    address: Address = "",
    job_array: JobArray = 0,
    as_json: Json = False,
) -> None:
    """Run a study (compare, slim or a paper) and print its goals."""
    from sparing.cli.shared.settings import apply
    from sparing.experiment.parallel.engines import Where

    where = Where(engine, processes, address)
    if data is not None and not expanded(data).is_dir():
        raise UsageError(f"the data folder {data} does not exist")
    study = _study(name, budget)
    options = apply(study.budgets[budget], settings or [])
    folder = output_dir or Path("runs") / f"{name}-{budget}"
    shard = _shard(study, cells, minutes)
    if job_array:
        _write_script(job_array, name, budget, data, folder, settings or [])
        return
    if plan:
        show_plan(study.plan(options, folder, data=data, cells=cells), as_json)
        return
    form = "--set task_options.{}" if hasattr(options, "task") else "--set task_options.TASK.{}"
    with option_form(form), progress_bar(quiet=as_json) as show:
        shard |= {"on_progress": show, "overwrite": overwrite, "where": where}
        result = study.run(options, folder, data=data, **shard)
    finish_study(result, as_json)


def _write_script(
    count: int,
    name: str,
    budget: str,
    data: Path | None,
    folder: Path,
    settings: Sequence[str],
) -> None:
    """Write the script of a job array beside the run's folder, and say how to submit it."""
    from sparing.core.writing import write_atomically
    from sparing.experiment.parallel.shares import job_array

    modules = (word for module in IMPORTED for word in ("--import", module))
    command = ["sparing", *modules, "study", name, "--budget", budget]
    command += ["--data", str(data)] if data is not None else []
    command += [word for setting in settings for word in ("--set", setting)]
    script = folder.with_name(f"{folder.name}-jobs.sh")
    write_atomically(script, job_array(count, command, folder))
    print(f"sh {script}   # submits {count} jobs, and one that joins them in {folder}")


def _study(name: str, budget: str) -> Study:
    """The study of that name; ``UsageError`` unless it has the budget."""
    from sparing.core.errors import nearest
    from sparing.experiment.registry import find_study

    study = find_study(name)
    if budget not in study.budgets:
        raise UsageError(f"{name} has no budget {budget!r}{nearest(budget, study.budgets)}")
    return study


def _shard(study: Study, cells: str, minutes: float | None) -> dict[str, Any]:
    """The options that limit a run; ``UsageError`` for a study without shards."""
    chosen = {} if cells == "*" else {"cells": cells}
    shard: dict[str, Any] = chosen if minutes is None else chosen | {"minutes": minutes}
    if shard and not study.shards:
        option = next(iter(shard))
        raise UsageError(
            f"{study.name} has no --{option}: stop it with Ctrl-C; the same command resumes it"
        )
    return shard
