"""Imports go downwards only, read off the syntax trees."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "sparing"
STOREYS = {
    "core": 0,
    "mechanisms": 1,
    "layers": 2,
    "testing": 2,
    "foreign": 3,
    "models": 4,
    "tasks": 4,
    "train": 5,
    "measure": 5,
    "predictors": 5,
    "transfer": 6,
    "export": 6,
    "calculator": 6,
    "studies": 7,
    "report": 7,
    "cli": 8,
}
REGISTRIES = {"mechanisms", "models", "tasks", "predictors", "studies", "cli"}
HEAVY = {
    "transformers": 3,
    "datasets": 4,
    "sklearn": 4,
    "scipy": 4,
    "accelerate": 5,
    "onnx": 6,
    "onnxruntime": 6,
    "onnxscript": 6,
    "matplotlib": 7,
    "jinja2": 7,
    "typer": 8,
}
FILES = sorted(path for path in SOURCE.rglob("*.py") if path.parent != SOURCE)


def violations(source: str, place: tuple[str, ...]) -> list[str]:
    """What a file at ``place`` (such as ("core", "mask")) imports that it must not."""
    folder, *inner = place
    entry = inner[0] if inner else "__init__"
    found = []
    for name in _imported(ast.parse(source)):
        parts = name.split(".")
        if parts[0] in HEAVY and STOREYS[folder] < HEAVY[parts[0]]:
            found.append(f"{name} is imported above {folder} only")
        if parts[0] != "sparing" or len(parts) < 2 or parts[1] not in STOREYS:
            continue
        there = parts[1]
        if there != folder and STOREYS[there] >= STOREYS[folder]:
            found.append(f"{folder} imports {there}")
        sibling = parts[2] if len(parts) > 2 else ""
        same_registry = there == folder and folder in REGISTRIES
        entries = entry != "__init__" and not entry.startswith("_")
        if same_registry and entries and sibling and not sibling.startswith("_"):
            found.append(f"entry {entry} imports its sibling {sibling}")
    return found


def _imported(tree: ast.Module) -> list[str]:
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return names


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_go_downwards(path):
    place = path.relative_to(SOURCE).with_suffix("").parts
    assert violations(path.read_text(), place) == []


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ("from sparing.studies.compare import x", ("core", "mask")),
        ("import transformers", ("mechanisms", "softmax")),
        ("from sparing.mechanisms.eager import Eager", ("mechanisms", "softmax")),
        ("from sparing.train.recipe import Recipe", ("measure", "latency")),
    ],
)
def test_the_rule_can_fail(line, place):
    assert violations(line, place)


def circles(imports):
    """Groups of files that import each other, found by dropping those that import nobody left."""
    left = {name: set(others) for name, others in imports.items()}
    while done := [name for name, others in left.items() if not others & left.keys()]:
        for name in done:
            del left[name]
    while done := [n for n in left if not any(n in others for others in left.values())]:
        for name in done:
            del left[name]
    return sorted(left)


def test_no_files_import_each_other():
    """Packages as such are left out: they gather what their files hold."""
    files = {
        ".".join(("sparing", *path.relative_to(SOURCE).with_suffix("").parts)): path
        for path in FILES
        if path.name != "__init__.py"
    }
    imports = {}
    for name, path in files.items():
        named = _imported(ast.parse(path.read_text()))
        found = {each.rpartition(".")[0] for each in named} | set(named)
        imports[name] = (found & files.keys()) - {name}
    assert circles(imports) == []


def test_circles_are_seen():
    chain = {"a": {"b"}, "b": {"c"}, "c": set()}
    assert circles(chain) == []
    assert circles(chain | {"c": {"b"}}) == ["b", "c"]
    assert circles(chain | {"c": {"a"}}) == ["a", "b", "c"]
