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
RECORDS = "records"
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
        str,
        typer.Argument(help="mechanisms, tasks, models, predictors, studies or records."),
    ] = "mechanisms",
    study: Annotated[str, typer.Argument(help="The study that has the records.")] = "",
    traits: Annotated[bool, typer.Option(help="Also what each mechanism can do.")] = False,
    facts: Annotated[
        bool, typer.Option(help="Also each task's metrics, chance level, licence and source.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List the mechanisms (or tasks, models, predictors, studies) by name.

    Of the records of a study (sparing list records compare), list the unit and the meaning too.
    """
    if kind not in (*KINDS, RECORDS):
        raise UsageError(f"nothing of the kind {kind!r} to list{nearest(kind, (*KINDS, RECORDS))}")
    _require_fitting(kind, study, traits=traits, facts=facts)
    if kind == RECORDS:
        _with_units(study, as_json)
        return
    names = [name.replace("_", "-") if kind == "tasks" else name for name in _names(kind)]
    if traits:
        _with_traits(names, as_json)
    elif facts:
        _with_facts(names, as_json)
    elif as_json:
        emit({kind: names})
    else:
        print("\n".join(names))


def _require_fitting(kind: str, study: str, *, traits: bool, facts: bool) -> None:
    if traits and kind != "mechanisms":
        raise UsageError(f"--traits belongs to mechanisms, not to {kind}")
    if facts and kind != "tasks":
        raise UsageError(f"--facts belongs to tasks, not to {kind}")
    if study and kind != RECORDS:
        raise UsageError(f"a study belongs to records, not to {kind}; got {study[:40]!r}")
    if kind == RECORDS and not study:
        raise UsageError(f"sparing list {RECORDS} needs a study; see sparing list studies")


def _names(kind: str) -> list[str]:
    if kind == "studies":
        from sparing.experiment.installed import study_names

        return study_names()
    return Folder(f"sparing.{kind}", KINDS[kind]).names()


def _with_units(study: str, as_json: bool) -> None:
    """The unit and the meaning of each record of a study; as JSON its labels too."""
    from dataclasses import asdict

    from sparing.experiment.registry import find_study
    from sparing.experiment.schema import schema_of

    schema = schema_of(find_study(study))
    if as_json:
        emit({RECORDS: {name: asdict(entry) for name, entry in schema.entries.items()}})
        return
    rows = [(name, schema.unit(name), entry.means) for name, entry in schema.entries.items()]
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    for name, unit, means in sorted(rows):
        print(f"{name.ljust(widths[0])}  {unit.ljust(widths[1])}  {means}")


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
