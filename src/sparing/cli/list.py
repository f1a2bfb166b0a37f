"""``sparing list``: mechanisms, tasks, models, predictors and studies, a line each."""

from __future__ import annotations

import ast
import importlib.util
from importlib.abc import InspectLoader
from typing import Annotated, Any

import typer

from sparing.cli.shared.common import Json, emit, verb
from sparing.core.errors import UsageError, nearest, one_line
from sparing.core.folder import Folder

KINDS = {
    "mechanisms": "mechanism",
    "tasks": "task",
    "models": "model",
    "predictors": "predictor",
    "studies": "study",
}
RECORDS = "records"
EXAMPLE = "sparing list tasks"
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
    "With default options. pad: supports padding; cross: other queries than keys;",
    "len: any length; exact: equals softmax; perm: the order of keys has no effect;",
    "rand: random numbers when built; grad: exact gradients; exp: torch.export at any",
    "length; onnx: torch.onnx.export(dynamo=True), equal outputs in onnxruntime.",
)


@verb
def run(
    kind: Annotated[
        str,
        typer.Argument(help="mechanisms, tasks, models, predictors, studies or records."),
    ] = "mechanisms",
    study: Annotated[str, typer.Argument(help="The study of the records.")] = "",
    traits: Annotated[bool, typer.Option(help="Show what every mechanism supports.")] = False,
    facts: Annotated[
        bool, typer.Option(help="Show the tasks' metrics, chance levels, licences and sources.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List mechanisms, tasks, models, predictors or studies.

    For the records of a study (sparing list records compare) the line has unit and meaning.
    """
    if kind not in (*KINDS, RECORDS):
        raise UsageError(f"unknown kind {kind!r}{nearest(kind, (*KINDS, RECORDS))}")
    _require_fitting(kind, study, traits=traits, facts=facts)
    if kind == RECORDS:
        _with_units(study, as_json)
        return
    modules = _modules(kind)
    names = list(modules)
    if traits:
        _with_traits(names, as_json)
    elif facts:
        _with_facts(names, as_json)
    elif as_json:
        emit({kind: names})
    else:
        _print_rows([(name, _summary(module)) for name, module in modules.items()])


def _require_fitting(kind: str, study: str, *, traits: bool, facts: bool) -> None:
    if traits and kind != "mechanisms":
        raise UsageError(f"--traits belongs to mechanisms, not to {kind}")
    if facts and kind != "tasks":
        raise UsageError(f"--facts belongs to tasks, not to {kind}")
    if study and kind != RECORDS:
        raise UsageError(f"a study belongs to records, not to {kind}; got {study[:40]!r}")
    if kind == RECORDS and not study:
        raise UsageError(f"sparing list {RECORDS} needs a study; see sparing list studies")


def _modules(kind: str) -> dict[str, str]:
    """The module of every entry of a kind, by the entry's name."""
    if kind == "studies":
        from sparing.experiment.installed import installed

        return {name: entry.module for name, entry in sorted(installed().items())}
    package = f"sparing.{kind}"
    names = Folder(package, KINDS[kind]).names()
    return {
        name.replace("_", "-") if kind == "tasks" else name: f"{package}.{name}" for name in names
    }


def _summary(module: str) -> str:
    """The first line of a module's docstring; the module is read, not imported."""
    try:
        spec = importlib.util.find_spec(module)
        if spec is None or not isinstance(spec.loader, InspectLoader):
            raise ImportError(f"there is no source of module {module}")
        tree = ast.parse(spec.loader.get_source(module) or "")
    except (ImportError, SyntaxError) as error:  # of a foreign distribution
        return f"cannot be loaded: {one_line(str(error))}"
    first = (ast.get_docstring(tree) or "no description").partition("\n")[0]
    return first.replace("``", "")


def _print_rows(rows: list[tuple[str, ...]]) -> None:
    """Print rows with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print("  ".join(cells).rstrip())


def _with_units(study: str, as_json: bool) -> None:
    """Print unit and meaning of a study's records; as JSON their labels too."""
    from dataclasses import asdict

    from sparing.experiment.registry import find_study
    from sparing.experiment.schema import schema_of

    schema = schema_of(find_study(study))
    if as_json:
        emit({RECORDS: {name: asdict(entry) for name, entry in schema.entries.items()}})
        return
    entries = sorted(schema.entries.items())
    _print_rows([(name, schema.unit(name), entry.means) for name, entry in entries])


def _with_traits(names: list[str], as_json: bool) -> None:
    from sparing.core.catalogue import mechanism_class
    from sparing.core.traits import FAMILIES

    rows = {name: vars(mechanism_class(name).traits) for name in names}
    if as_json:
        emit({"mechanisms": rows})
        return
    order = {family: index for index, family in enumerate(FAMILIES)}
    grouped = sorted(rows, key=lambda name: (order.get(rows[name]["family"], len(order)), name))
    _print_matrix({name: rows[name] for name in grouped})


def _with_facts(names: list[str], as_json: bool) -> None:
    """Print the tasks' metrics, chance levels and sources; the first metric decides."""
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
    """Print the traits in 80 columns, grouped by family; without a terminal nothing is cut."""
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
