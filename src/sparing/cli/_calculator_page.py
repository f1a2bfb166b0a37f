"""The calculator's page: told where it is, served until Ctrl-C."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparing.calculator import Calculator


def show_page(calculator: Calculator, models: Path | None, port: int) -> None:
    """Serve the page on this machine alone."""
    from sparing.calculator.web import ADDRESS, serve, voices

    with serve(voices(calculator, models), port) as server:
        print(f"http://{ADDRESS}:{server.server_address[1]}/", flush=True)
        print("Ctrl-C ends it.", file=sys.stderr)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print(file=sys.stderr)
