"""The command line: one file is one verb; heavy work is imported inside the verbs."""

from __future__ import annotations

import typer

from sparing import __version__
from sparing.core.folder import Folder

EPILOGUE = (
    "Exit codes: 0 done, 1 failed, 2 used wrongly, 3 a required goal was not met, "
    "4 finished with some cells failed, 130 interrupted."
)


def application() -> typer.Typer:
    """The command line with every verb of this folder."""
    app = typer.Typer(
        name="sparing",
        help="Which attention should this model use, on this task, on this machine?",
        epilog=EPILOGUE,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    folder = Folder(__name__, "verb")
    for name in folder.names():
        app.command(name)(folder.load(name).run)
    return app


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"sparing {__version__}")
        raise typer.Exit


def _root(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and leave."
    ),
) -> None:
    """Which attention should this model use, on this task, on this machine, and is it worth it?"""


def main() -> None:
    """Run the command line."""
    application()()
