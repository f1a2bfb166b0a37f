"""``sparing merge FOLDER FOLDER --output-dir NEW``: shards of one study become one run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sparing.cli.shared.common import Json, emit, verb

EXAMPLE = "sparing merge runs/first runs/second --output-dir runs/whole"


@verb
def run(
    folders: Annotated[list[Path], typer.Argument(help="Folders of one study.")],
    output_dir: Annotated[Path, typer.Option(help="A new folder for the whole run.")],
    as_json: Json = False,
) -> None:
    """Join the parts of one study that ran in several folders."""
    from sparing.experiment.merge import merge

    merged = merge(folders, output_dir)
    if as_json:
        facts = {"folder": str(merged.folder), "cells": merged.cells, "doubled": merged.doubled}
        emit(facts)
        return
    for folder, count in merged.cells.items():
        print(f"{count:>6,} cells of {folder}")
    if merged.doubled:
        print(f"{merged.doubled:>6,} cells were in several folders; the first folder's are used")
    print(f"the study's command continues in {merged.folder}; --minutes 0 only evaluates it")
