"""``sparing pack RUN``: a finished run made ready for git."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sparing.cli.shared.common import Json, emit, verb

EXAMPLE = "sparing pack runs/compare-digits"


@verb
def run(
    folders: Annotated[list[Path], typer.Argument(help="Folders of finished runs.")],
    partial: Annotated[
        bool, typer.Option("--partial", help="Also pack a run with cells that are not done.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Make finished runs ready for git: small, without drawings.

    It keeps records.jsonl.xz, config.json, goals.json, failed.json, report.md
    and slim's answers.safetensors.xz. `sparing report` writes the rest again.

    Every command reads a packed run; the one that made it unpacks it to go on.
    """
    from sparing.report.packing import pack
    from sparing.report.wording import size_of_bytes

    done = [pack(folder, partial=partial) for folder in folders]
    if as_json:
        emit({"packed": [packed.to_dict() for packed in done]})
        return
    for packed in done:
        sizes = [size_of_bytes(size) for size in (packed.bytes_before, packed.bytes_after)]
        print(f"{packed.folder}: {sizes[0]} before, {sizes[1]} packed")
        for name, size in packed.left.items():
            print(f"  {name} was left as it is ({size_of_bytes(size)}); keep it out of git")
