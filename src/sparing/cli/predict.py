"""``sparing predict MODEL --texts FILES --output-dir DIR``: answer files of any size."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sparing.cli.shared.common import Json, Overwrite, emit, progress_bar, verb, words
from sparing.cli.shared.endings import FAILED, say

if TYPE_CHECKING:
    from sparing.predict.study import Predictions

EXAMPLE = "sparing predict my-model --texts 'texts/*.parquet' --output-dir answers --processes 4"
ALL = "Write the probability of every class."
Model = Annotated[str, typer.Argument(help="A folder, .onnx, .xml or hub name.")]
Texts = Annotated[list[str], typer.Option(help="A file, folder or quoted glob; repeatable.")]
Count = Annotated[int | None, typer.Option(help="Of one thread each; default: one a processor.")]
Address = Annotated[str, typer.Option(help="A Ray cluster's: auto, local, HOST:PORT.")]
Threshold = Annotated[float | None, typer.Option(help="Of each of several labels; 0.5.")]


@verb
def run(
    model: Model,
    texts: Texts,
    output_dir: Annotated[Path, typer.Option(help="The folder for the answers.")],
    columns: Annotated[str, typer.Option(help="The column of texts, or two by a comma.")] = "",
    keep: Annotated[str, typer.Option(help="Columns to copy to the answers, by commas.")] = "",
    encoding: Annotated[str, typer.Option(help="The encoding of the texts.")] = "utf-8",
    header: Annotated[bool | None, typer.Option(help="Whether tables name columns.")] = None,
    batch: Annotated[int, typer.Option(help="Texts that are answered at a time.")] = 8,
    rows_a_shard: Annotated[int, typer.Option(help="Rows of one file of the output.")] = 5_000,
    form: Annotated[str, typer.Option("--format", help="parquet or jsonl.")] = "parquet",
    threshold: Threshold = None,
    probabilities: Annotated[bool, typer.Option("--probabilities", help=ALL)] = False,
    strict: Annotated[bool, typer.Option("--strict", help="End at the first bad row.")] = False,
    engine: Annotated[str, typer.Option(help="local or ray.")] = "local",
    address: Address = "auto",
    processes: Count = None,
    shard: Annotated[str, typer.Option(help="Only this share of the files, as 3/16.")] = "1/1",
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Answer files of any size, and go on where it stopped.

    Writes one row for each row, in order, into files that appear when they are whole.
    """
    from sparing.predict.options import Options
    from sparing.predict.study import run as answer

    named: dict[str, Any] = {"encoding": encoding, "header": header, "threshold": threshold}
    named |= {"columns": tuple(words(columns)), "keep": tuple(words(keep)), "batch": batch}
    named |= {"rows_a_shard": rows_a_shard, "format": form, "probabilities": probabilities}
    named |= {"strict": strict, "engine": engine, "address": address, "processes": processes}
    options = Options(**named, shard=shard)
    with progress_bar(quiet=as_json) as show:
        result = answer(model, texts, output_dir, options, overwrite, show)
    _finish(result, as_json)


def _finish(result: Predictions, as_json: bool) -> None:
    """Print the result, and exit with 1 where no row has an answer."""
    if as_json:
        emit(result.to_dict())
    else:
        print(result)
    if result.rows and result.errors == result.rows:
        say("no row has an answer" + (f": {result.first_error}" if result.first_error else ""))
        raise typer.Exit(FAILED)
