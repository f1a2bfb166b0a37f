"""The structure, read off the syntax trees: what may import what, and how large a folder may be."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = {"sparing": ROOT / "src" / "sparing", "sparing_papers": ROOT / "papers/sparing_papers"}
# A package imports packages of lower numbers; the files at the top of sparing may import all.
ORDER = {
    "core": 0,
    "engines": 1,
    "mechanisms": 1,
    "layers": 2,
    "testing": 2,
    "foreign": 3,
    "models": 4,
    "tasks": 4,
    "answers": 5,
    "train": 5,
    "measure": 5,
    "predictors": 5,
    "transfer": 6,
    "export": 6,
    "calculator": 6,
    "experiment": 7,
    "report": 8,
    "compare": 9,
    "slim": 10,
    "advise": 10,
    "agree": 10,
    "predict": 11,
    "cli": 12,
}
PAPERS = {"long_range": 0, "adaattention": 1, "calculator": 1, "hugginggreen": 1}
PAPERS |= {"kerformer": 1, "linformer": 1, "overview": 2}
# Registries of one idea a file: entries share code with each other by files that begin with an
# underscore or lie in ``shared``, and may be many.
REGISTRIES = {"mechanisms", "models", "tasks", "predictors", "cli"}
MANY = {"mechanisms", "tasks", "testing/entries"}
HEAVY = {
    "ray": 1,
    "transformers": 3,
    "datasets": 4,
    "sklearn": 4,
    "scipy": 4,
    "accelerate": 5,
    "onnx": 6,
    "onnxruntime": 6,
    "onnxscript": 6,
    "openvino": 6,
    "nncf": 6,
    "executorch": 6,
    "torchao": 6,
    "matplotlib": 8,
    "jinja2": 8,
    "typer": 12,
}
MOST_FILES, MOST_FILES_NEW = 30, 15
NEW = {
    "answers",
    "engines",
    "experiment",
    "report",
    "compare",
    "slim",
    "advise",
    "agree",
    "predict",
}


def modules() -> dict[str, Path]:
    """Every module of ours by its dotted name; packages under their own name."""
    by_name = {}
    for package, folder in PACKAGES.items():
        for path in sorted(folder.rglob("*.py")):
            parts = (package, *path.relative_to(folder).with_suffix("").parts)
            by_name[".".join(parts).removesuffix(".__init__")] = path
    return by_name


MODULES = modules()


def imported(source: str) -> list[str]:
    """The dotted names that a source file imports anywhere."""
    names = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return names


def violations(source: str, name: str) -> list[str]:
    """What a module imports that it must not: what is above it, siblings, heavy or private."""
    root, home, *inner = (*name.split("."), "")[:4]
    complaints = []
    for other in imported(source):
        their_root, there, *rest = (*other.split("."), "")[:4]
        if root == "sparing" and home in ORDER and ORDER[home] < HEAVY.get(their_root, 0):
            complaints.append(f"{other} is imported above {home} only")
        if their_root not in PACKAGES:
            continue
        if root == "sparing" and their_root == "sparing_papers":
            complaints.append("the library imports papers")
        if (their_root, there) != (root, home) and _is_private(other.split(".")[2:]):
            complaints.append(f"{other} is private")
        order = ORDER if root == "sparing" else PAPERS
        above = their_root == root and there in order and order[there] >= order.get(home, 99)
        if above and there != home:
            complaints.append(f"{home} imports {there}")
        entry = there == home in REGISTRIES and inner[0] and not inner[0].startswith("_")
        if entry and root == their_root == "sparing" and inner[0] != "shared":
            sibling = rest[0] if rest else ""
            if sibling not in ("", "shared", inner[0]) and not sibling.startswith("_"):
                complaints.append(f"entry {inner[0]} imports its sibling {sibling}")
    return complaints


def _is_private(parts: list[str]) -> bool:
    return any(part.startswith("_") and not part.startswith("__") for part in parts)


def test_imports_go_downwards_and_respect_what_is_private():
    by_module = {name: violations(path.read_text(), name) for name, path in MODULES.items()}
    assert {name: complaints for name, complaints in by_module.items() if complaints} == {}


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("from sparing.compare.study import x", "sparing.core.mask"),
        ("from sparing.compare.page.tables import x", "sparing.report.page"),
        ("import transformers", "sparing.mechanisms.softmax"),
        ("from sparing.mechanisms.eager import Eager", "sparing.mechanisms.softmax"),
        ("from sparing.train.recipe import Recipe", "sparing.measure.latency"),
        ("from sparing.train._loop import run", "sparing.slim.models"),
        ("from sparing.slim.study import _decide", "sparing.advise.study"),
        ("from sparing_papers.kerformer.study import run", "sparing.cli.study"),
        ("from sparing_papers.kerformer.study import run", "sparing_papers.linformer.study"),
        ("from sparing.train._loop import run", "sparing_papers.linformer.study"),
    ],
)
def test_the_rule_can_fail(line, name):
    assert violations(line, name)


def circles(imports: Mapping[str, set[str]]) -> list[str]:
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
    files = {name: path for name, path in MODULES.items() if path.name != "__init__.py"}
    imports = {}
    for name, path in files.items():
        named = imported(path.read_text())
        candidates = {target.rpartition(".")[0] for target in named} | set(named)
        imports[name] = (candidates & files.keys()) - {name}
    assert circles(imports) == []


def test_circles_are_seen():
    chain = {"a": {"b"}, "b": {"c"}, "c": set()}
    assert circles(chain) == []
    assert circles(chain | {"c": {"b"}}) == ["b", "c"]
    assert circles(chain | {"c": {"a"}}) == ["a", "b", "c"]


def overfull(files: list[str], new: set[str]) -> dict[str, int]:
    """Folders with more files than they may have; those within ``new`` may have fewer."""
    counts = Counter(str(Path(file).parent) for file in files)
    most = {f: MOST_FILES_NEW if f.split("/")[0] in new else MOST_FILES for f in counts}
    return {f: count for f, count in counts.items() if f not in MANY and count > most[f]}


def test_folders_are_small():
    for package, folder in PACKAGES.items():
        files = [str(path.relative_to(folder)) for path in folder.rglob("*.py")]
        files = [file for file in files if not file.endswith("__init__.py")]
        assert overfull(files, NEW if package == "sparing" else {*PAPERS}) == {}


def test_full_folders_are_seen():
    files = [f"slim/page/part_{number}.py" for number in range(16)]
    assert overfull(files, NEW) == {"slim/page": 16}
    assert overfull([f"tasks/task_{number}.py" for number in range(60)], NEW) == {}
