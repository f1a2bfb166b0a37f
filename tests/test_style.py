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


MANY_FIELDS, SHARED_COMMENT = 8, 4


def unexplained(source: str) -> list[str]:
    """Fields of large option classes without a comment above or a text below.

    One comment or text may explain up to four fields in a row.
    """
    lines, found = source.splitlines(), []
    for node in ast.walk(ast.parse(source)):
        body = node.body[1:] if isinstance(node, ast.ClassDef) else []
        if sum(isinstance(part, ast.AnnAssign) for part in body) > MANY_FIELDS:
            found += [f"{node.name}.{name}" for name in _open_fields(body, lines)]
    return found


def _open_fields(body: list[ast.stmt], lines: list[str]) -> list[str]:
    bare, since = [], SHARED_COMMENT
    for part in body:
        if isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant):
            del bare[-SHARED_COMMENT:]
            since = SHARED_COMMENT
        elif isinstance(part, ast.AnnAssign):
            since = 0 if lines[part.lineno - 2].lstrip().startswith("#") else since + 1
            bare += [part.target.id] if since >= SHARED_COMMENT else []
    return bare


def test_every_option_of_a_study_is_explained():
    files = [path for path in FILES if path.name == "options.py"]
    files.append(ROOT / "src/sparing/compare/study.py")
    assert len(files) > 5
    assert {path.name: names for path in files if (names := unexplained(path.read_text()))} == {}


def test_an_option_without_a_comment_is_noticed():
    fields = "\n".join(f"    f{number}: int = {number}" for number in range(MANY_FIELDS + 1))
    commented = fields.replace("    f0", "    # The first.\n    f0").replace(
        "    f4", "    # On.\n    f4"
    )
    head = 'class Options:\n    """Options."""\n'
    assert unexplained(f"{head}{fields}\n")[0] == "Options.f0"
    assert unexplained(f"{head}{commented}\n") == ["Options.f8"]
    assert unexplained(f'{head}{commented}\n    """The last."""\n') == []
