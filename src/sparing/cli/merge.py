"""``sparing merge FOLDER FOLDER --output-dir NEW``: pieces of one study, put together."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sparing.cli._shared import Json, emit, verb


@verb
def run(
    folders: Annotated[list[Path], typer.Argument(help="Folders of one and the same study.")],
    output_dir: Annotated[Path, typer.Option(help="A new folder for the whole.")],
    as_json: Json = False,
) -> None:
    """Put the finished cells of one study together, that ran as several processes or machines."""
    from sparing.experiment.merge import merge

    merged = merge(folders, output_dir)
    if as_json:
        found = {"folder": str(merged.folder), "cells": merged.cells, "doubled": merged.doubled}
        emit(found)
        return
    for folder, count in merged.cells.items():
        print(f"{count:>6,} cells of {folder}")
    if merged.doubled:
        print(f"{merged.doubled:>6,} cells were in more than one, taken from the first")
    print(f"the study's own command goes on in {merged.folder}; with --minutes 0 it only judges")
