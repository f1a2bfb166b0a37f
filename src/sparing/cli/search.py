"""``sparing search PREDICTOR``: sizes and a rate for a network that predicts sums."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from sparing.cli._shared import Json, emit, progress_bar, verb


@verb
def run(
    predictor: Annotated[str, typer.Argument(help="See sparing list predictors.")],
    trials: Annotated[int, typer.Option(min=1, help="Trials in all, those done included.")] = 100,
    epochs: Annotated[int, typer.Option(min=1, help="At most, for each trial.")] = 200,
    seed: Annotated[int, typer.Option(min=0, help="Of the search and of weights.")] = 0,
    output_dir: Annotated[Path | None, typer.Option(help="Default: runs/search-NAME.")] = None,
    as_json: Json = False,
) -> None:
    """Search a predictor's sizes and learning rate; stopped at any moment, it goes on."""
    from sparing.calculator.search import search_predictor

    place = output_dir or Path("runs") / f"search-{predictor}"
    with progress_bar(quiet=as_json) as show:
        found = search_predictor(
            predictor, trials, place, epochs=epochs, seed=seed, on_progress=show
        )
    if as_json:
        emit(asdict(found))
        return
    shown = ", ".join(f"{name} {value}" for name, value in found.options.items())
    print(f"best of {found.trials}: squared error {found.loss:.4g} on the validation sums")
    print(f"learning rate {found.learning_rate:.3g}, {shown}")
