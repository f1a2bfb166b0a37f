"""Which texts of a package's ``text.md`` nothing uses, and which that are used are not there."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from sparing.report.prose import Prose

ROOT = Path(__file__).resolve().parents[2]
SOURCES = (ROOT / "src", ROOT / "papers")


def dotted(path):
    """The module or package that a file or a folder is."""
    (source,) = (source for source in SOURCES if path.is_relative_to(source))
    return ".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__")


@cache
def modules():
    """The syntax tree of every module, by its name."""
    paths = (path for source in SOURCES for path in source.glob("sparing*/**/*.py"))
    return {dotted(path): ast.parse(path.read_text(encoding="utf-8")) for path in paths}


def readers(trees, package):
    """The names, with their modules, that are bound to the ``Prose`` of a package."""
    for module, tree in trees.items():
        calls = {f"Prose({package!r})"} | ({"Prose(__name__)"} if module == package else set())
        for node, value in assigned_calls(tree):
            if value in calls:
                yield from (f"{module}.{target.id}" for target in node.targets)


@cache
def assigned_calls(tree):
    """Assignments of what a call returns, each with the text of the call."""
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.Assign))
    return [(node, ast.unparse(node.value)) for node in nodes if isinstance(node.value, ast.Call)]


@cache
def calls(tree):
    """Every call, with the text of what is called."""
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    return [(node, ast.unparse(node.func)) for node in nodes]


@cache
def aliases(module, tree):
    """What the names of a module stand for: its own, and those that it imports."""
    known = {node.id: f"{module}.{node.id}" for node in ast.walk(tree) if type(node) is ast.Name}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            known |= {name.asname or name.name: f"{node.module}.{name.name}" for name in node.names}
    return known


def keys_in(node):
    """Patterns of the keys that an expression may be; None where it may be any."""
    if isinstance(node, ast.Constant):
        return [re.escape(str(node.value))]
    if isinstance(node, ast.IfExp):
        parts = keys_in(node.body), keys_in(node.orelse)
        return None if None in parts else [*parts[0], *parts[1]]
    if isinstance(node, ast.JoinedStr):
        parts = (keys_in(part) or ["\\S+"] for part in node.values)
        return ["".join(part for (part,) in parts)]
    return None


def used(trees, package):
    """(patterns of keys that calls ask for, every text of modules that ask for a key by a name)."""
    bound = set(readers(trees, package))
    patterns, texts = set(), set()
    for module, tree in trees.items():
        known = aliases(module, tree)
        for call, name in calls(tree):
            first, _, rest = name.removesuffix(".pairs").partition(".")
            if ".".join(filter(None, (known.get(first, first), rest))) not in bound:
                continue
            keys = keys_in(call.args[0])
            patterns |= set(keys or ())
            if keys is None:
                constants = (node for node in ast.walk(tree) if isinstance(node, ast.Constant))
                texts |= {str(node.value) for node in constants}
    return patterns, texts


def faults(keys, patterns, texts):
    """(keys that nothing uses, patterns that are no key)"""
    unused = [key for key in keys if key not in texts and not _any(patterns, [key])]
    return unused, [pattern for pattern in patterns if not _any([pattern], keys)]


def _any(patterns, keys):
    return any(re.fullmatch(pattern, key) for pattern in patterns for key in keys)


def files(folder):
    """The ``text.md`` of all packages in a folder of the repository."""
    return sorted((ROOT / folder).glob("sparing*/**/text.md"))


def faults_of(path):
    """``faults`` of a package's ``text.md``."""
    package = dotted(path.parent)
    return faults(Prose(package).texts, *used(modules(), package))
