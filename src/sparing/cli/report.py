"""``sparing report FOLDER``: write the page of a run again from its records."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sparing.cli.shared.common import Json, emit, verb

EXAMPLE = "sparing report runs/compare-digits"


@verb
def run(
    folder: Annotated[Path, typer.Argument(help="The folder of a run, finished or not.")],
    as_json: Json = False,
) -> None:
    """Write the page of a run again from its records.

    The page is report.html, report.md and figures; nothing is measured.
    """
    from sparing.report.page import write_report

    pages = write_report(folder)
    if as_json:
        emit({name: str(path) for name, path in pages.items()})
    else:
        print(pages["html"])
