"""The calculator's page: told where it is, served until Ctrl-C."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sparing.cli._endings import note
from sparing.core.interrupts import Terminated

if TYPE_CHECKING:
    from sparing.calculator import Calculator


def show_page(calculator: Calculator, models: Path | None, port: int) -> None:
    """Serve the page on this machine alone."""
    from sparing.calculator.web import ADDRESS, serve, voices

    with serve(voices(calculator, models), port) as server:
        print(f"http://{ADDRESS}:{server.server_address[1]}/", flush=True)
        note("Ctrl-C ends it.")
        try:
            server.serve_forever()
        except Terminated:
            raise
        except KeyboardInterrupt:
            note()
