"""``sparing agree A B --texts FILE``: do two models give the same answers?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sparing.cli.shared.common import Json, emit, progress_bar, verb, words
from sparing.cli.shared.endings import GOAL_MISSED, say

if TYPE_CHECKING:
    from sparing.agree.result import Result

EXAMPLE = "sparing agree my-model fast.onnx --texts texts.txt --at-least 0.97"


@verb
def run(
    first: Annotated[str, typer.Argument(metavar="A", help="A folder, .onnx, .xml or hub name.")],
    second: Annotated[str, typer.Argument(metavar="B", help="Another one, compared with A.")],
    texts: Annotated[str, typer.Option(help="Your texts: a file, or a data set of the hub.")],
    reference: Annotated[str, typer.Option(help="A third one; both are compared with it.")] = "",
    at_least: Annotated[float, typer.Option(help="Exit with 3 unless so many agree.")] = 0.0,
    columns: Annotated[str, typer.Option(help="The column of texts, or two by a comma.")] = "",
    encoding: Annotated[str, typer.Option(help="The encoding of the texts.")] = "utf-8",
    split: Annotated[str, typer.Option(help="The split of a data set.")] = "",
    tokenizer: Annotated[str, typer.Option(help="For models without one; default: A's.")] = "",
    threshold: Annotated[float | None, typer.Option(help="Of each of several labels; 0.5.")] = None,
    least_cosine: Annotated[float | None, typer.Option(help="Of equal vectors; 0.99.")] = None,
    most_difference: Annotated[float | None, typer.Option(help="Of equal numbers.")] = None,
    batch: Annotated[int, typer.Option(help="Texts that are answered at a time.")] = 1,
    timed: Annotated[int, typer.Option(help="Texts to time on; 0: do not time.")] = 200,
    threads: Annotated[int, typer.Option(help="Threads that compute.")] = 1,
    changed: Annotated[Path | None, typer.Option(help="All changed texts: .jsonl, .csv.")] = None,
    output: Annotated[Path | None, typer.Option(help="Write the JSON result here.")] = None,
    as_json: Json = False,
) -> None:
    """Compare the answers of two models on your texts.

    Reports agreement with its bound, changed answers, drift and paired speed; needs no labels.
    """
    from sparing.agree.options import Options
    from sparing.agree.result import require_ending
    from sparing.agree.study import run as compare
    from sparing.answers import Settings
    from sparing.tasks.texts import read_texts

    settings = Settings(threshold, least_cosine, most_difference)
    options = Options(at_least, batch, timed, threads, settings)
    if changed is not None:
        require_ending(changed)
    rows = read_texts(texts, columns=words(columns) or None, encoding=encoding, split=split)
    more = {"reference": reference, "tokenizer": tokenizer}
    with progress_bar(quiet=as_json) as show:
        result = compare(first, second, rows, options, **more, on_progress=show)
    _finish(result, changed, output, as_json)


def _finish(result: Result, changed: Path | None, output: Path | None, as_json: bool) -> None:
    """Print the result, write the files, and exit with 3 below the required agreement."""
    from sparing.agree.result import write_changes
    from sparing.core.writing import write_atomically

    content = result.to_dict()
    if as_json:
        emit(content)
    else:
        print(result)
    # after the result is printed: a full disk must not cost it
    if changed is not None:
        write_changes(result, changed)
    if output is not None:
        write_atomically(output, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    for line in result.missed:
        say(line)
    if result.missed:
        raise typer.Exit(GOAL_MISSED)
