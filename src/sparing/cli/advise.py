"""``sparing advise MODEL``: where a model spends its time, and what would make it faster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sparing.cli.shared.common import Json, emit, numbers, progress_bar, verb, words

if TYPE_CHECKING:
    from sparing.advise.study import Advice

EXAMPLE = "sparing advise bert --tokens 128 --quick"


@verb
def run(
    model: Annotated[
        str,
        typer.Argument(help="A folder, a hub name, or bert or vit (base size, random weights)."),
    ],
    tokens: Annotated[
        int | None, typer.Option(help="The input length; default: 512, or the model's limit.")
    ] = None,
    batch: Annotated[int, typer.Option(help="Inputs in a batch.")] = 1,
    texts: Annotated[
        Path | None, typer.Option(help="Your texts: padding, engines and answers on them.")
    ] = None,
    mechanisms: Annotated[str, typer.Option(help="Mechanisms, by commas; default: all.")] = "",
    lengths: Annotated[str, typer.Option(help="Lengths of the curves, such as 64,512,4096.")] = "",
    threads: Annotated[int | None, typer.Option(help="Threads; default: those of PyTorch.")] = None,
    engines: Annotated[
        bool, typer.Option(help="Also time it in ONNX Runtime, OpenVINO, bfloat16 and INT8.")
    ] = True,
    quick: Annotated[
        bool, typer.Option("--quick", help="Half the rounds; wider intervals.")
    ] = False,
    output_dir: Annotated[
        Path | None, typer.Option(help="Write records.jsonl and advice.json here.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Find what would make a model faster on this machine."""
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
    for table in advice.tables:
        text = Table(title=escape(table.title), box=None, title_justify="left")
        for head in table.heads:
            text.add_column(escape(head), overflow="fold")
        for row in table.rows:
            text.add_row(*map(escape, row))
        console.print()
        console.print(text, highlight=False)
    console.print()
    for note in advice.notes:
        console.print(f"- {escape(note)}", highlight=False)
    facts = advice.machine
    source = f"{advice.model} ({advice.model_class}) on {facts['cpu']}, torch {facts['torch']}"
    console.print(f"- Measured here: {escape(source)}.", highlight=False)
