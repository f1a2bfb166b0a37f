"""Small and plain: sizes, annotations, docstrings, words."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = sorted(
    path
    for folder in ("src/sparing", "papers/sparing_papers")
    for path in (ROOT / folder).rglob("*.py")
)
FILE_LINES, FUNCTION_LINES = 400, 40
BANNED = re.compile(r"(Manager|Helper|Utils?|Base)$")
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK|NotImplementedError)\b")


def complaints(source: str) -> list[str]:
    """What a source file does against the house style."""
    found = []
    if source.count("\n") > FILE_LINES:
        found.append(f"{source.count(chr(10))} lines")
    found += [f"unfinished: {match.group()}" for match in UNFINISHED.finditer(source)]
    tree = ast.parse(source)
    if not ast.get_docstring(tree):
        found.append("no module docstring")
    inner = {id(b) for a in ast.walk(tree) if _is_function(a) for b in ast.walk(a) if b is not a}
    for node in ast.walk(tree):
        if _is_function(node):
            found += _function(node, public=id(node) not in inner)
        if isinstance(node, ast.ClassDef):
            if BANNED.search(node.name):
                found.append(f"class {node.name}: says nothing")
            if not node.name.startswith("_") and not ast.get_docstring(node):
                found.append(f"class {node.name}: no docstring")
    return found


def _is_function(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def _function(node: ast.FunctionDef, public: bool) -> list[str]:
    found = []
    lines = node.end_lineno - node.lineno + 1
    if lines > FUNCTION_LINES:
        found.append(f"{node.name}: {lines} lines")
    if node.returns is None:
        found.append(f"{node.name}: no return annotation")
    if public and not node.name.startswith("_") and not ast.get_docstring(node):
        found.append(f"{node.name}: no docstring")
    return found


def test_files_are_small_plain_and_documented():
    found = {str(path.relative_to(ROOT)): complaints(path.read_text()) for path in FILES}
    assert {path: wrong for path, wrong in found.items() if wrong} == {}


@pytest.mark.parametrize(
    "source",
    [
        '"""A."""\ndef f(x):\n    """B."""\n',
        '"""A."""\nclass ThingManager:\n    """B."""\n',
        '"""A."""\ndef f() -> None: ...\n',
        "x = 1\n",
        '"""A."""\nx = 1  # TODO later\n',
        '"""A."""\n' + "x = 1\n" * 401,
    ],
)
def test_the_rule_can_fail(source):
    assert complaints(source)
