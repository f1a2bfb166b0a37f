"""``sparing list``: the names of what there is."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from sparing.cli._shared import Json, emit, verb
from sparing.core.errors import UsageError, nearest
from sparing.core.folder import Folder

KINDS = {
    "mechanisms": "mechanism",
    "tasks": "task",
    "models": "model",
    "predictors": "predictor",
    "studies": "study",
}
HEADS = {
    "causal": "causal",
    "padding": "pad",
    "cross": "cross",
    "any_length": "len",
    "exact": "exact",
    "permutable": "perm",
    "random": "rand",
    "differentiable": "grad",
    "exportable": "exp",
    "onnx": "onnx",
}
LEGEND = (
    "With default options. pad: honours padding; cross: other queries than keys;",
    "len: any length; exact: equals softmax; perm: the order of keys is nothing;",
    "rand: draws numbers when built; grad: true gradients; exp: torch.export at any",
    "length; onnx: torch.onnx.export(dynamo=True), the same answers in onnxruntime.",
)


@verb
def run(
    kind: Annotated[
        str, typer.Argument(help="mechanisms, tasks, models, predictors or studies.")
    ] = "mechanisms",
    traits: Annotated[bool, typer.Option(help="Also what each mechanism can do.")] = False,
    facts: Annotated[
        bool, typer.Option(help="Also each task's metrics, chance level, licence and source.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List the mechanisms (or tasks, models, predictors, studies) by name."""
    if kind not in KINDS:
        raise UsageError(f"nothing of the kind {kind!r} to list{nearest(kind, KINDS)}")
    names = [name.replace("_", "-") if kind == "tasks" else name for name in _names(kind)]
    if traits and kind != "mechanisms":
        raise UsageError(f"--traits belongs to mechanisms, not to {kind}")
    if facts and kind != "tasks":
        raise UsageError(f"--facts belongs to tasks, not to {kind}")
    if traits:
        _with_traits(names, as_json)
    elif facts:
        _with_facts(names, as_json)
    elif as_json:
        emit({kind: names})
    else:
        print("\n".join(names))


def _names(kind: str) -> list[str]:
    if kind == "studies":
        from sparing.experiment.installed import study_names

        return study_names()
    return Folder(f"sparing.{kind}", KINDS[kind]).names()


def _with_traits(names: list[str], as_json: bool) -> None:
    from sparing.core.catalogue import mechanism_class
    from sparing.core.traits import FAMILIES

    rows = {name: vars(mechanism_class(name).traits) for name in names}
    if as_json:
        emit({"mechanisms": rows})
        return
    order = {family: place for place, family in enumerate(FAMILIES)}
    grouped = sorted(rows, key=lambda name: (order.get(rows[name]["family"], len(order)), name))
    _print_matrix({name: rows[name] for name in grouped})


def _with_facts(names: list[str], as_json: bool) -> None:
    """Each task's metrics, the first being the one it is judged by, and where it comes from."""
    from dataclasses import asdict

    from sparing.tasks import facts

    rows = {name: facts(name) for name in names}
    if as_json:
        emit({"tasks": {name: asdict(row) for name, row in rows.items()}})
        return
    for name, row in rows.items():
        chance = "depends on the data" if row.chance is None else f"{row.chance:.3f}"
        print(f"{name}: {', '.join(row.metrics)}; chance {chance}")
        print(f"  source   {row.source}")
        print(f"  licence  {row.licence}")
        print(f"  test     {row.splits}")


def _print_matrix(rows: dict[str, dict[str, Any]]) -> None:
    """The support matrix in 80 columns, grouped by family; never cut where no terminal is."""
    from rich.console import Console
    from rich.table import Table

    terminal = Console().is_terminal
    table = Table("name", "family", "year", *HEADS.values(), box=None, pad_edge=False)
    table.padding = (0, 1, 0, 0)
    before = None
    for name, row in rows.items():
        if terminal and before not in (None, row["family"]):
            table.add_row()
        before = row["family"]
        marks = (("[green]yes" if row[flag] else "[dim]no") for flag in HEADS)
        table.add_row(name, row["family"], str(row["year"]), *marks)
    console = Console() if terminal else Console(width=200)
    console.print(table, highlight=False)
    console.print("\n" + "\n".join(LEGEND), highlight=False)
