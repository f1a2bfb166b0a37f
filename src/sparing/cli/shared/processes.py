"""A verb in several new processes of this machine, which train together."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import Annotated, Any

import typer

from sparing.cli.shared.common import spoken
from sparing.cli.shared.endings import silence_others
from sparing.core.errors import UsageError
from sparing.core.folder import IMPORTED

SharedBy = Annotated[
    int, typer.Option(help="Processes on this machine that share every batch of a training.")
]


def in_several(processes: int, verb: str, function: Callable[..., None], *given: Any) -> None:
    """Call a verb's function here, or in each of several new processes and exit with its code.

    Raises ``UsageError`` for fewer than one, and where a launcher has started this process.
    """
    if processes == 1:
        function(*given)
        return
    if processes < 1:
        raise UsageError(f"--processes must be at least 1; got {processes}")
    if int(os.environ.get("WORLD_SIZE", "1") or 1) > 1:
        raise UsageError("--processes starts processes itself: leave torchrun or accelerate out")
    from sparing.train.processes import run_in

    code = run_in(processes, _in_one, verb, tuple(IMPORTED), function, *given)
    if code:
        raise typer.Exit(code)


def _in_one(
    verb: str, imported: tuple[str, ...], function: Callable[..., None], *given: Any
) -> int:
    """Call it in one of the processes, with the modules that --import named."""
    silence_others()
    for name in imported:
        importlib.import_module(name)
    with spoken(verb):
        try:
            function(*given)
        except typer.Exit as leaving:
            return leaving.exit_code
    return 0
