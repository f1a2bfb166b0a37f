"""``sparing list``: the names of what there is."""

from __future__ import annotations

from typing import Annotated

import typer

from sparing.cli._shared import Json, emit, verb
from sparing.core.errors import UsageError, nearest
from sparing.core.folder import Folder

KINDS = {"mechanisms": "mechanism", "tasks": "task", "models": "model", "studies": "study"}


@verb
def run(
    kind: Annotated[
        str, typer.Argument(help="mechanisms, tasks, models or studies.")
    ] = "mechanisms",
    traits: Annotated[bool, typer.Option(help="Also what each mechanism can do.")] = False,
    as_json: Json = False,
) -> None:
    """List the mechanisms (or tasks, models, studies) by name."""
    if kind not in KINDS:
        raise UsageError(f"nothing of the kind {kind!r} to list{nearest(kind, KINDS)}")
    names = [name.replace("_", "-") if kind == "tasks" else name for name in _names(kind)]
    if traits and kind != "mechanisms":
        raise UsageError(f"--traits belongs to mechanisms, not to {kind}")
    if traits:
        _with_traits(names, as_json)
    elif as_json:
        emit({kind: names})
    else:
        print("\n".join(names))


def _names(kind: str) -> list[str]:
    return Folder(f"sparing.{kind}", KINDS[kind]).names()


def _with_traits(names: list[str], as_json: bool) -> None:
    from sparing.core.catalogue import mechanism_class
    from sparing.core.traits import FLAGS

    rows = {name: vars(mechanism_class(name).traits) for name in names}
    if as_json:
        emit({"mechanisms": rows})
        return
    width = max(map(len, rows))
    for name, row in rows.items():
        print(f"{name:<{width}}  {row['year']}  {', '.join(flag for flag in FLAGS if row[flag])}")
