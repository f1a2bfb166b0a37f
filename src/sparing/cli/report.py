"""``sparing report FOLDER``: the page of a run, written again from its records."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sparing.cli._shared import Json, emit, verb


@verb
def run(
    folder: Annotated[Path, typer.Argument(help="A run's folder, finished or still going.")],
    as_json: Json = False,
) -> None:
    """Write report.html, report.md and figures from a run's records; nothing is measured."""
    from sparing.report.page import write_report

    pages = write_report(folder)
    if as_json:
        emit({name: str(path) for name, path in pages.items()})
    else:
        print(pages["html"])
