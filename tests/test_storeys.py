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
