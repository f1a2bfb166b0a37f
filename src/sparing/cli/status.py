"""``sparing status FOLDER``: how far is a run that another process is doing?"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sparing.cli.shared.common import Json, emit, in_words, verb

if TYPE_CHECKING:
    from sparing.experiment.parallel.status import Status

EXAMPLE = "sparing status runs/compare-digits"


@verb
def run(
    folder: Annotated[Path, typer.Argument(help="The folder of a run.")],
    as_json: Json = False,
) -> None:
    """Show how far a run is: its cells, and the time left."""
    from sparing.experiment.parallel.status import status_of

    status = status_of(folder)
    if as_json:
        emit(status.to_dict())
        return
    print(_sentence(status))
    for key in status.failed:
        print(f"failed: {key}")
    if status.running:
        _show_running(status)


def _sentence(status: Status) -> str:
    """The counts, the process that does the run, and the time left."""
    counts = f"{status.study} in {status.folder}: {status.done} of {status.planned} cells done"
    if status.failed:
        counts += f", {len(status.failed)} failed"
    driver = status.driver
    if driver is None:
        rest = f", {status.waiting} to do" if status.waiting else ""
        return f"{counts}{rest}; no process is doing it now"
    left = status.seconds_left
    ends = f"; about {in_words(left)} left" if left is not None else ""
    now = f", {len(status.running)} running" if status.running else ""
    at = "" if status.running or not driver.text else f"; now at {driver.text}"
    by = f"; process {driver.pid} on {driver.node}"
    return f"{counts}{now}, {status.waiting} waiting{by}{at}{ends}"


def _show_running(status: Status) -> None:
    """A table of the cells that run, by node."""
    from rich.console import Console
    from rich.table import Table

    table = Table("node", "cell", "for", "done", "at", box=None)
    for note in sorted(status.running, key=lambda note: (note.node, note.key)):
        took = in_words(time.time() - note.since)
        table.add_row(note.node, note.key, took, f"{note.fraction:.0%}", note.text)
    Console().print(table)
