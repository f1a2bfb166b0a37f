"""``sparing advise MODEL``: where a model's time goes here, and what would make it faster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sparing.cli._shared import Json, emit, numbers, progress_bar, verb, words

if TYPE_CHECKING:
    from sparing.advise.study import Advice


@verb
def run(
    model: Annotated[
        str, typer.Argument(help="A folder, a hub name, or bert or vit (base size, random).")
    ],
    tokens: Annotated[
        int | None, typer.Option(help="The length to advise on; default 512, or the model's limit.")
    ] = None,
    batch: Annotated[int, typer.Option(help="Texts or images in a batch.")] = 1,
    texts: Annotated[
        Path | None, typer.Option(help="Your texts, one a line, to see what padding costs.")
    ] = None,
    mechanisms: Annotated[str, typer.Option(help="Mechanisms, by commas; default all.")] = "",
    lengths: Annotated[str, typer.Option(help="Lengths of the curves: 64,512,4096.")] = "",
    threads: Annotated[int | None, typer.Option(help="Default: as many as PyTorch takes.")] = None,
    engines: Annotated[
        bool, typer.Option(help="Export it and time it in ONNX Runtime and INT8 too.")
    ] = True,
    quick: Annotated[
        bool, typer.Option("--quick", help="Half the rounds, wider intervals.")
    ] = False,
    output_dir: Annotated[
        Path | None, typer.Option(help="Leave records.jsonl and advice.json here.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Say what would make a model faster on this machine: padding, engine, slim, attention."""
    from sparing.advise.study import Options
    from sparing.advise.study import run as advise

    counts = tuple(numbers(lengths, "--lengths"))
    options = Options(tokens, batch, tuple(words(mechanisms)), counts, threads, engines, quick)
    with progress_bar(quiet=as_json) as show:
        advice = advise(model, options, texts=texts, output_dir=output_dir, on_progress=show)
    if as_json:
        emit(advice.to_dict())
    else:
        _print(advice)


def _print(advice: Advice) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console()
    console.print(escape(advice.recommendation), style="bold", highlight=False)
    for shown in advice.tables:
        table = Table(title=escape(shown.title), box=None, title_justify="left")
        for head in shown.heads:
            table.add_column(escape(head), overflow="fold")
        for row in shown.rows:
            table.add_row(*map(escape, row))
        console.print()
        console.print(table, highlight=False)
    console.print()
    for note in advice.notes:
        console.print(f"- {escape(note)}", highlight=False)
    facts = advice.machine
    place = f"{advice.model} ({advice.model_class}) on {facts['cpu']}, torch {facts['torch']}"
    console.print(f"- Measured here: {escape(place)}.", highlight=False)
