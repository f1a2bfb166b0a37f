"""The records of committed runs, and the names of records in code: both read off the files."""

from __future__ import annotations

import ast
import json
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from sparing.core.compressed import read_stored, stored_path
from sparing.core.record import RECORDS
from sparing.experiment.schema import Schema

ROOT = Path(__file__).parents[2]
LOOK_UPS = {"find", "all", "value", "empty", "matching", "values_of"}
LOOK_UPS |= {"mean", "difference", "by_seed"}  # those of papers
# Numbers with an interval that a page makes for itself.
UNWRITTEN = {"ratio", "right_share"}
OWNERS = {"r", "record"}  # variables whose name is compared with a text
NAME = re.compile(r"[a-z][a-z0-9_]*")
SHAPE = re.compile(r"(\*_)?[a-z][a-z0-9_]{3,}(_\*)?")  # of a name with one part given


@dataclass
class Used:
    """The units and labels that records of one name have, or the code names."""

    units: set[str] = field(default_factory=set)
    labels: set[str] = field(default_factory=set)


@cache
def committed(results: Path) -> dict[str, dict[str, Used]]:
    """What the runs in a folder hold: by study and name; each file is read once."""
    studies: dict[str, dict[str, Used]] = defaultdict(lambda: defaultdict(Used))
    for path in sorted(results.glob("*/config.json")):
        config = json.loads(path.read_text(encoding="utf-8"))
        names = studies[config.get("study", "")]
        stored = stored_path(path.parent / RECORDS)
        lines = read_stored(stored).splitlines() if stored else []
        for record in map(json.loads, lines):
            used = names[record["name"]]
            used.units.add(record["unit"])
            used.labels.update(record["labels"])
    return studies


def runs_of(results: Path, *studies: str) -> dict[str, Used]:
    """What the committed runs of some studies hold together, by name."""
    whole: dict[str, Used] = defaultdict(Used)
    for study in studies:
        for name, used in committed(results).get(study, {}).items():
            whole[name].units.update(used.units)
            whole[name].labels.update(used.labels)
    return whole


def undeclared(schema: Schema, names: Mapping[str, Used]) -> list[str]:
    """The names, units and labels of records that a schema does not declare."""
    problems = [f"name {name}" for name in names if not schema.known(name)]
    for name in names.keys() - {problem.removeprefix("name ") for problem in problems}:
        entry, used = schema.entry(name), names[name]
        problems += [f"unit {unit!r} of {name}" for unit in used.units - set(entry.units)]
        problems += [f"label {label} of {name}" for label in used.labels - set(entry.labels)]
    return sorted(problems)


@dataclass
class Code:
    """What a package's code says: the names of records with their lines, and all its texts."""

    names: dict[str, str] = field(default_factory=dict)
    patterns: dict[str, str] = field(default_factory=dict)
    texts: set[str] = field(default_factory=set)
    made_texts: set[str] = field(default_factory=set)

    def unknown(self, schema: Schema) -> list[str]:
        """The names and patterns that a schema does not declare, with a line of code."""
        plain = [*schema.entries]
        made = {pattern.replace("*", name) for pattern in plain if "*" in pattern for name in plain}
        lines = {n: line for n, line in self.names.items() if not schema.known(n)}
        lines |= {
            pattern: line
            for pattern, line in self.patterns.items()
            if not any(fnmatchcase(name, pattern) for name in (*plain, *made))
        }
        return [f"{line}: {name}" for name, line in lines.items() if name not in UNWRITTEN]

    def writes(self, name: str) -> bool:
        """Whether a text, or a pattern of a name, in the code is this name."""
        return name in self.texts or any(fnmatchcase(name, made) for made in self.made_texts)


def unused(file: Path, code: Code, runs: Mapping[str, Used]) -> list[str]:
    """The names, units and labels in one ``records.toml`` that neither code nor runs have."""
    tables: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
    tables.pop("include", None)
    problems = [f"name {name}" for name in tables if name not in runs and not code.writes(name)]
    for name, table in tables.items():
        used, unit = runs.get(name, Used()), table.get("unit", [])
        units = {unit} if isinstance(unit, str) else {*unit}
        idle = {f"unit {text!r}" for text in units - used.units - code.texts}
        idle |= {f"label {text}" for text in {*table.get("labels", ())} - used.labels - code.texts}
        problems += sorted(f"{problem} of {name}" for problem in idle)
    return problems


@cache
def code_of(*folders: Path) -> Code:
    """What the code in some folders says."""
    code = Code()
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            read_names(path.read_text(encoding="utf-8"), path.name, code)
    return code


def read_names(source: str, file: str, code: Code) -> None:
    """Add what one file says: ``Record("x")``, ``.find("x")``, ``record.name == "x"``."""
    tree = ast.parse(source)
    constants = dict(_constants(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            code.texts.add(node.value)
        elif isinstance(node, ast.JoinedStr) and SHAPE.fullmatch(_shape(node)):
            code.made_texts.add(_shape(node))
        elif isinstance(node, ast.keyword) and node.arg:
            code.texts.add(node.arg)  # a label may be given as one
        for name in _named(node):
            where = f"{file}:{node.lineno}"
            if isinstance(name, ast.Name):
                name = constants.get(name.id, name)
            if isinstance(name, ast.JoinedStr):
                code.patterns.setdefault(_shape(name), where)
            elif isinstance(name, ast.Constant) and NAME.fullmatch(str(name.value)):
                code.names.setdefault(name.value, where)


def _constants(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Names that the file gives a value once and for all."""
    for node in tree.body:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                names = target.elts if isinstance(target, ast.Tuple) else [target]
                many = isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple)
                values = node.value.elts if many else [node.value] * len(names)
                pairs = zip(names, values, strict=True)
                yield from ((name.id, v) for name, v in pairs if isinstance(name, ast.Name))


def _shape(text: ast.JoinedStr) -> str:
    """An f-string with a star for what it is given."""
    return "".join(str(p.value) if isinstance(p, ast.Constant) else "*" for p in text.values)


def _named(node: ast.AST) -> list[ast.expr]:
    """What stands where a record's name belongs."""
    if isinstance(node, ast.Call):
        function = node.func
        method = isinstance(function, ast.Attribute)
        called = function.attr if method else getattr(function, "id", "")
        if called.endswith("_record"):  # a function that makes one, perhaps from a group's
            return node.args[:2]
        if called in ("Record", "recorded") or (method and called in LOOK_UPS):
            return [*node.args[:1], *(word.value for word in node.keywords if word.arg == "name")]
    if isinstance(node, ast.Compare) and isinstance(node.left, ast.Attribute):
        owner = getattr(node.left.value, "id", "")
        if node.left.attr == "name" and owner in OWNERS:
            return [part for other in node.comparators for part in getattr(other, "elts", [other])]
    return []
