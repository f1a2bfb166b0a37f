"""The command line: one file is one verb; heavy work is imported inside the verbs."""

from __future__ import annotations

import builtins
import importlib
import inspect
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn, get_args, get_type_hints

import typer

from sparing.cli._endings import USED_WRONGLY, exit_code, note, say
from sparing.core.errors import UsageError, one_line
from sparing.core.folder import Folder
from sparing.core.paths import expanded
from sparing.core.version import __version__

EPILOGUE = (
    "Exit codes: 0 done, 1 failed, 2 used wrongly, 3 a required goal was not met, "
    "4 finished with some cells failed, 129 SIGHUP, 130 interrupted, "
    "141 the reader of the output went away, 143 SIGTERM."
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
        module = folder.load(name)
        _check_arguments(module.run)
        app.command(name, context_settings=getattr(module, "CONTEXT", None))(module.run)
    return app


def _check_arguments(run: Callable[..., object]) -> None:
    """Let ``_path`` read each path of a verb, and ``_name`` each name that it cannot do without.

    Both refuse what is empty: it comes of a variable that is not set.
    """
    verb = inspect.unwrap(run)
    required = inspect.signature(verb).parameters
    verb.__annotations__ = get_type_hints(verb, include_extras=True)
    for name, hint in verb.__annotations__.items():
        kinds = get_args(hint)
        for declared in getattr(hint, "__metadata__", ()):
            if Path in (kinds[0], *get_args(kinds[0])):
                declared.parser = _path
            elif kinds[0] is str and required[name].default is inspect.Parameter.empty:
                declared.parser = _name


def _path(text: str | Path) -> Path:
    if text == "":
        raise typer.BadParameter("the path is empty; the current folder is .")
    try:
        return expanded(text)
    except UsageError as error:
        raise typer.BadParameter(str(error)) from error


def _name(text: str) -> str:
    if not text.strip():
        raise typer.BadParameter("it is empty")
    return text


def _version(wanted: bool) -> bool:
    if wanted:
        typer.echo(f"sparing {__version__}")
        raise typer.Exit
    return wanted


def _import(names: builtins.list[str]) -> builtins.list[str]:
    """Import the modules that a person names: saved models may name their mechanisms then."""
    for name in names:
        try:
            importlib.import_module(name)
        except Exception as error:  # whatever a module does when it is imported
            line = one_line(f"{type(error).__name__}: {error}")
            raise typer.BadParameter(f"cannot import {name[:40]!r}: {line}") from error
    return names


def _root(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and leave."
    ),
    modules: builtins.list[str] = typer.Option(  # noqa: B008  # typer's way; `list` is a verb
        [],
        "--import",
        metavar="MODULE",
        callback=_import,
        help="Import a module first, so that a saved model may name its mechanisms.",
    ),
) -> None:
    """Which attention should this model use, on this task, on this machine, and is it worth it?"""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line on ``arguments`` (the process's own unless given) and leave.

    A misspelled verb or option gets one line, like every other mistake.
    """
    # not list(...): once loaded, the verb of that name hides the builtin in this module
    given = None if arguments is None else [*arguments]
    sys.exit(exit_code(lambda: _run(given)))


def _run(given: Sequence[str] | None) -> int:
    """Parse the arguments, run the verb and give its exit code."""
    try:
        code = application()(given, prog_name="sparing", standalone_mode=False)
    except Exception as error:
        # typer has carried a copy of click since some version, so the class has two homes
        if not hasattr(error, "format_message"):
            raise
        message = str(error.format_message()).strip()
        if type(error).__name__ == "NoArgsIsHelpError":
            note(message)
        else:
            say(message)
        return USED_WRONGLY
    return code if isinstance(code, int) else 0
