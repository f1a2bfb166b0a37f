"""``sparing search PREDICTOR``: sizes and a learning rate for a network that predicts sums."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from sparing.cli.shared.common import Json, emit, progress_bar, verb

EXAMPLE = "sparing search gru --trials 20"


@verb
def run(
    predictor: Annotated[str, typer.Argument(help="A name from sparing list predictors.")],
    trials: Annotated[int, typer.Option(min=1, help="Trials, finished ones included.")] = 100,
    epochs: Annotated[int, typer.Option(min=1, help="The most epochs of a trial.")] = 200,
    seed: Annotated[int, typer.Option(min=0, help="The seed of search and weights.")] = 0,
    processes: Annotated[int, typer.Option(min=1, help="Trials at a time.")] = 1,
    output_dir: Annotated[Path | None, typer.Option(help="Default: runs/search-NAME.")] = None,
    as_json: Json = False,
) -> None:
    """Search the sizes and learning rate of a predictor.

    The same command resumes a search that was interrupted.
    """
    from sparing.calculator.search import search_predictor

    folder = output_dir or Path("runs") / f"search-{predictor}"
    with progress_bar(quiet=as_json) as show:
        best = search_predictor(
            predictor,
            trials,
            folder,
            epochs=epochs,
            seed=seed,
            processes=processes,
            on_progress=show,
        )
    if as_json:
        emit(asdict(best))
        return
    shown = ", ".join(f"{name} {value}" for name, value in best.options.items())
    print(f"best of {best.trials}: squared error {best.loss:.4g} on the validation sums")
    print(f"learning rate {best.learning_rate:.3g}, {shown}")
