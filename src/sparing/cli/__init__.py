"""The command line: one file is one verb; heavy work is imported inside the verbs."""

from __future__ import annotations

import builtins
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn, get_args, get_type_hints

import typer

from sparing.cli.shared.endings import USED_WRONGLY, exit_code, note, say, silence_others
from sparing.cli.shared.groups import PANELS, DefaultGroup, Verbs
from sparing.core.errors import UsageError, one_line
from sparing.core.folder import IMPORTED, Folder
from sparing.core.paths import expanded
from sparing.core.version import __version__

EPILOGUE = (
    "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 a required goal was missed, "
    "4 finished with failed cells, 129 SIGHUP, 130 interrupted, "
    "141 the output was closed, 143 SIGTERM."
)


def application() -> typer.Typer:
    """The command line with every verb of this folder, grouped as ``PANELS`` says."""
    app = typer.Typer(
        name="sparing",
        cls=Verbs,
        help="Which attention should this model use, on this task, on this machine?",
        epilog=EPILOGUE,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    folder = Folder(__name__, "verb")
    for panel, verbs in PANELS.items():
        for name in verbs:
            _add(app, name, folder.load(name), rich_help_panel=panel)
    return app


def _add(app: typer.Typer, name: str, module: ModuleType, **settings: Any) -> None:
    """Add a verb: the module's ``run``, or its ``SUBCOMMANDS``, which have examples too."""
    context = getattr(module, "CONTEXT", None)
    if not hasattr(module, "SUBCOMMANDS"):
        _add_command(app, name, module.run, module.EXAMPLE, context, **settings)
        return
    parts = typer.Typer(cls=DefaultGroup, subcommand_metavar=module.USAGE)
    for part, (run, example) in module.SUBCOMMANDS.items():
        _add_command(parts, part, run, example, context if run is module.run else None)
    app.add_typer(parts, name=name, help=module.HELP, epilog=_epilogue(module.EXAMPLE), **settings)


def _add_command(
    app: typer.Typer,
    name: str,
    run: Callable[..., object],
    example: str,
    context: dict[str, Any] | None,
    **settings: Any,
) -> None:
    _check_arguments(run)
    app.command(name, context_settings=context, epilog=_epilogue(example), **settings)(run)


def _epilogue(example: str) -> str:
    return f"Example: {example}"


def _check_arguments(run: Callable[..., object]) -> None:
    """Let ``_path`` read every path of a verb, and ``_name`` every required name.

    Both refuse an empty value: it comes from a shell variable that is not set.
    """
    verb = inspect.unwrap(run)
    parameters = inspect.signature(verb).parameters
    verb.__annotations__ = get_type_hints(verb, include_extras=True)
    for name, hint in verb.__annotations__.items():
        types = get_args(hint)
        for option in getattr(hint, "__metadata__", ()):
            if Path in (types[0], *get_args(types[0])):
                option.parser = _path
            elif types[0] is str and parameters[name].default is inspect.Parameter.empty:
                option.parser = _name


def _path(text: str | Path) -> Path:
    if text == "":
        raise typer.BadParameter("the path is empty; the current folder is .")
    try:
        return expanded(text)
    except UsageError as error:
        raise typer.BadParameter(str(error)) from error


def _name(text: str) -> str:
    if not text.strip():
        raise typer.BadParameter("the name is empty")
    return text


def _version(shown: bool) -> bool:
    if shown:
        typer.echo(f"sparing {__version__}")
        raise typer.Exit
    return shown


def _import(names: builtins.list[str]) -> builtins.list[str]:
    """Import the named modules, so that saved models may use their mechanisms."""
    for name in names:
        try:
            importlib.import_module(name)
        except Exception as error:  # whatever a module does when it is imported
            line = one_line(f"{type(error).__name__}: {error}")
            raise typer.BadParameter(f"cannot import {name[:40]!r}: {line}") from error
    IMPORTED[:] = names
    return names


def _root(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and exit."
    ),
    modules: builtins.list[str] = typer.Option(  # noqa: B008  # typer's way; `list` is a verb
        [],
        "--import",
        metavar="MODULE",
        callback=_import,
        help="Import a module first, so that a saved model may use its mechanisms.",
    ),
) -> None:
    """Which attention should this model use, on this task, on this machine, and is it worth it?"""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line on ``arguments`` (default: those of the process) and exit.

    A misspelled verb or option gets one line, like every other mistake.
    """
    silence_others()
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # else DDP warns at its first step
    # not list(...): once loaded, the verb of that name hides the builtin in this module
    words = None if arguments is None else [*arguments]
    sys.exit(exit_code(lambda: _run(words)))


def _run(words: Sequence[str] | None) -> int:
    """Parse the arguments, run the verb and return its exit code."""
    try:
        code = application()(words, prog_name="sparing", standalone_mode=False)
    except Exception as error:
        # newer versions of typer hold a copy of click: the class may come from either
        if not hasattr(error, "format_message"):
            raise
        message = str(error.format_message()).strip()
        if type(error).__name__ == "NoArgsIsHelpError":
            note(message)
        else:
            say(message)
        return USED_WRONGLY
    return code if isinstance(code, int) else 0
