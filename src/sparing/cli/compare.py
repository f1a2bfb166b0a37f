"""``sparing compare TASK``: several attentions on one task, and a page that says which to use."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

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
    seed_list,
    verb,
    words,
)
from sparing.cli.shared.runs import finish_study, show_plan

EXAMPLE = "sparing compare digits --mechanisms softmax,window,linformer --seeds 3"
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="path=value, such as options.linformer.slots=32."),
]


@verb
def run(
    task: Annotated[str, typer.Argument(help="A task, such as digits.")] = "digits",
    mechanisms: Annotated[
        str, typer.Option(help="Names separated by commas, or all, controls, family:sparse.")
    ] = "softmax,linformer,kerformer",
    seeds: Annotated[str, typer.Option(help="How many seeds, or which: 5, or 0,1,2.")] = "5",
    model: Annotated[str, typer.Option(help="vit, bert, or a pretrained model's path.")] = "",
    epochs: Annotated[int, typer.Option(help="Epochs of training; 0: those of the recipe.")] = 0,
    data: Data = None,
    output_dir: Annotated[Path | None, typer.Option(help="Default: runs/compare-TASK.")] = None,
    overwrite: Overwrite = False,
    plan: Plan = False,
    settings: Settings = None,
    engine: Engine = "local",
    processes: Processes = 0,
    address: Address = "",
    as_json: Json = False,
) -> None:
    """Train several attentions on a task and compare them on a page."""
    from sparing.cli.shared.settings import apply
    from sparing.compare import STUDY
    from sparing.compare import study as compare
    from sparing.experiment.parallel.engines import Where

    where = Where(engine, processes, address)
    arms, chosen = tuple(words(mechanisms)), seed_list(seeds)
    options = compare.Options(task=task, mechanisms=arms, seeds=chosen, model=model)
    if epochs and options.recipe is not None:
        options = replace(options, recipe=replace(options.recipe, epochs=epochs))
    options = apply(options, settings or [])
    folder = output_dir or Path("runs") / f"compare-{Path(task).name}"
    if plan:
        show_plan(STUDY.plan(options, folder, data=data), as_json)
        return
    more: dict[str, Any] = {"data": data, "overwrite": overwrite, "where": where}
    with progress_bar(quiet=as_json) as show:
        result = STUDY.run(options, folder, on_progress=show, **more)
    finish_study(result, as_json)
