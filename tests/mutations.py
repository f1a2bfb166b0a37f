"""The one-line changes that can be made to a source file, for `mutants.py`."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator
from typing import Any

Edit = tuple[int, int, int, str, str]
"""Line, first and last byte, the new text, and the kind of the change."""

BOTH_WAYS = (
    *(("<", "<="), (">", ">="), ("==", "!="), ("in", "not in"), ("is", "is not")),
    *(("+", "-"), ("*", "/"), ("|", "&"), ("and", "or")),
)
OTHER = dict(BOTH_WAYS) | {b: a for a, b in BOTH_WAYS} | dict.fromkeys(("//", "%", "**"), "*")
OPERATOR = re.compile(r"\bnot in\b|\bis not\b|\b(?:in|is|and|or)\b|\*\*|//|[<>=!]=|[-+*/%|&<>]")
FUNCTIONS = (
    *(("min", "max"), ("any", "all"), ("floor", "ceil"), ("minimum", "maximum"), ("cdf", "sf")),
    *(("argmax", "argmin"), ("amin", "amax"), ("mean", "sum")),
)
NAMES = dict(FUNCTIONS) | {b: a for a, b in FUNCTIONS if b != "sum"}
SILENT = re.compile(r"^(logger|logging|warnings)\.")


def mutations(source: str) -> list[dict[str, Any]]:
    """All changes that still compile, each once, with the function that they lie in."""
    lines = source.encode().split(b"\n")
    changes: dict[tuple[str, str, str], dict[str, Any]] = {}
    for function, (line, start, end, text, kind) in _edits(ast.parse(source), lines, ""):
        old = lines[line - 1]
        new = old[:start] + text.encode() + old[end:]
        before, after = old.decode().strip(), new.decode().strip()
        if before == after or not _compiles(lines, line, new):
            continue
        change = {"line": line, "function": function, "kind": kind, "before": before}
        change |= {"after": after, "whole": new.decode() + "\n"}
        changes.setdefault((function, before, after), change)
    return list(changes.values())


def _compiles(lines: list[bytes], line: int, new: bytes) -> bool:
    try:
        compile(b"\n".join([*lines[: line - 1], new, *lines[line:]]), "changed", "exec")
    except SyntaxError:
        return False
    return True


def _edits(node: ast.AST, lines: list[bytes], function: str) -> Iterator[tuple[str, Edit]]:
    """The changes of a node and of what is in it; annotations, imports and texts stay."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        function = node.name
    for edit in _node_edits(node, lines):
        yield function, edit
    for child in _inside(node):
        yield from _edits(child, lines, function)


def _inside(node: ast.AST) -> list[ast.AST]:
    if isinstance(node, ast.Import | ast.ImportFrom | ast.JoinedStr | ast.Assert | ast.Raise):
        return []
    if isinstance(node, ast.FunctionDef):
        return [*node.args.defaults, *filter(None, node.args.kw_defaults), *node.body]
    if isinstance(node, ast.ClassDef):
        return list(node.body)
    if isinstance(node, ast.AnnAssign):
        return [node.value] if node.value else []
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return list(node.orelse)
    if isinstance(node, ast.Call):
        name = ast.unparse(node.func)
        if SILENT.match(name) or name in ("isinstance", "issubclass", "Literal"):
            return []
    return list(ast.iter_child_nodes(node))


def _node_edits(node: ast.AST, lines: list[bytes]) -> Iterator[Edit]:
    if isinstance(node, ast.stmt):
        yield from _statement(node)
    if not isinstance(node, ast.expr) or node.lineno != node.end_lineno:
        if isinstance(node, ast.Compare | ast.BinOp | ast.BoolOp):
            yield from _operators(node, lines)
        return
    yield from _operators(node, lines)
    yield from _value(node)
    if isinstance(node, ast.Call):
        yield from _call(node, lines)
    if isinstance(node, ast.Subscript):
        index = ast.unparse(node.slice)
        if index in ("0", "-1"):
            other = "-1" if index == "0" else "0"
            yield _whole(node.slice, other, "first or last")


def _whole(node: Any, text: str, kind: str) -> Edit:
    return (node.lineno, node.col_offset, node.end_col_offset, text, kind)


def _statement(node: ast.stmt) -> Iterator[Edit]:
    one_line = node.lineno == node.end_lineno
    called = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    stored = isinstance(node, ast.Assign) and not isinstance(node.targets[0], ast.Name | ast.Tuple)
    if called and SILENT.match(ast.unparse(node)):
        return
    ends = isinstance(node, ast.AugAssign | ast.Continue | ast.Break | ast.Raise)
    if one_line and (called or stored or ends):
        yield _whole(node, "pass", "dropped statement")
    if isinstance(node, ast.Return) and one_line and isinstance(node.value, ast.Constant):
        yield _whole(node.value, '""', "another default")
    if isinstance(node, ast.If | ast.While) and not isinstance(node.test, ast.Compare):
        test = node.test
        if test.lineno == test.end_lineno and ast.unparse(test) != "TYPE_CHECKING":
            yield (test.lineno, test.col_offset, test.col_offset, "not ", "negated condition")


def _operators(node: ast.expr, lines: list[bytes]) -> Iterator[Edit]:
    """One operator replaced; it stands between the ends of two operands of one line."""
    if isinstance(node, ast.Compare):
        operands = [node.left, *node.comparators]
    elif isinstance(node, ast.BinOp):
        operands = [node.left, node.right]
    elif isinstance(node, ast.BoolOp):
        operands = node.values
    else:
        return
    for left, right in itertools.pairwise(operands):
        if left.end_lineno != right.lineno:
            continue
        start = left.end_col_offset or 0
        between = lines[right.lineno - 1][start : right.col_offset].decode()
        match = OPERATOR.search(between)
        if match:
            offset = start + len(between[: match.start()].encode())
            end = offset + len(match.group())
            yield (right.lineno, offset, end, OTHER[match.group()], type(node).__name__.lower())


def _value(node: ast.expr) -> Iterator[Edit]:
    if isinstance(node, ast.UnaryOp):
        dropped = {ast.Not: "not ", ast.USub: "-", ast.Invert: "~"}.get(type(node.op))
        if dropped:
            end = node.col_offset + len(dropped)
            yield (node.lineno, node.col_offset, end, "", f"dropped {dropped.strip()}")
    if isinstance(node, ast.IfExp):
        test = node.test
        yield (test.lineno, test.col_offset, test.col_offset, "not ", "negated condition")
    if isinstance(node, ast.Constant):
        value = node.value
        if isinstance(value, bool):
            yield _whole(node, str(not value), "constant")
        elif isinstance(value, int):
            yield _whole(node, str(value + 1), "constant")
        elif isinstance(value, float):
            yield _whole(node, repr(2 * value if value else 1.0), "constant")


def _call(node: ast.Call, lines: list[bytes]) -> Iterator[Edit]:
    """Another function of the same kind, or the first two arguments swapped."""
    func: Any = node.func
    name = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
    if name in NAMES:
        start = func.end_col_offset - len(name)
        yield (func.end_lineno, start, func.end_col_offset, NAMES[name], "another function")
    plain = [a for a in node.args[:2] if not isinstance(a, ast.Starred | ast.GeneratorExp)]
    if len(plain) == 2 and name not in ("isinstance", "issubclass"):
        line = lines[node.lineno - 1]
        first, second = (line[a.col_offset : a.end_col_offset].decode() for a in plain)
        start, end = plain[0].col_offset, plain[1].end_col_offset or 0
        comma = line[plain[0].end_col_offset : plain[1].col_offset].decode()
        yield (node.lineno, start, end, f"{second}{comma}{first}", "swapped arguments")
