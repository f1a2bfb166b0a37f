"""A page for each verb of the command line, from the typer application."""

from __future__ import annotations

from typing import Any

import typer

from page_parts import prose, table
from sparing.cli import application

Pages = dict[str, str]
INDEX = """\
# Commands

Each page is made from what `sparing COMMAND --help` prints.
What holds for all commands, such as exit codes: [the command line](../command-line.md).
"""


def command_pages() -> Pages:
    """The pages of all verbs and their table, by path below ``reference``."""
    verbs: dict[str, Any] = typer.main.get_command(application()).commands  # type: ignore[attr-defined]
    pages = {f"commands/{name}.md": verb_page(name, verb) for name, verb in verbs.items()}
    rows = [[f"[`{name}`]({name}.md)", prose(_first(verb))] for name, verb in verbs.items()]
    toctree = "\n".join(["```{toctree}", ":hidden:", "", *verbs, "```"])
    pages["commands/index.md"] = (
        f"{INDEX}\n{table(['Command', 'What it does'], rows)}\n\n{toctree}\n"
    )
    return pages


def _first(verb: Any) -> str:
    return str(verb.help).split("\n\n")[0]


def verb_page(name: str, verb: Any) -> str:
    """Usage, arguments and options of one verb, and of each of its sub-commands."""
    parts = [f"# sparing {name}"]
    parts += [prose(paragraph) for paragraph in str(verb.help).split("\n\n")]
    if not hasattr(verb, "commands"):
        return "\n\n".join([*parts, *_usage(name, verb)]) + "\n"
    for part, command in verb.commands.items():
        parts += [f"## {part}", prose(_first(command)), *_usage(f"{name} {part}", command)]
    return "\n\n".join(parts) + "\n"


def _usage(name: str, verb: Any) -> list[str]:
    arguments = [p for p in verb.params if p.param_type_name == "argument"]
    options = [p for p in verb.params if p.param_type_name == "option" and not p.hidden]
    shown = " ".join(_argument(p) for p in arguments)
    parts = [f"```text\nsparing {name} [OPTIONS] {shown}".rstrip() + "\n```"]
    if arguments:
        rows = [[f"`{p.name.upper()}`", *_described(p)] for p in arguments]
        parts.append(table(["Argument", "Meaning", "Default"], rows))
    rows = [[_names(p), *_described(p)] for p in options]
    rows.append(["`--help`, `-h`", "Show this text and exit.", ""])
    return [*parts, table(["Option", "Meaning", "Default"], rows)]


def _argument(parameter: Any) -> str:
    name = parameter.name.upper() + ("..." if parameter.nargs == -1 else "")
    return name if parameter.required else f"[{name}]"


def _names(option: Any) -> str:
    return ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))


def _described(parameter: Any) -> list[str]:
    default = parameter.default
    if parameter.required:
        shown = "required"
    elif default in (None, "", False, ()) or callable(default):
        shown = ""
    else:
        shown = f"`{default}`"
    return [prose(parameter.help or ""), shown]
