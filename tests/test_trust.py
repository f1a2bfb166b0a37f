"""What may be dangerous is done in one place each, and nobody goes around it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "sparing"
WRITING = "core/writing.py"
# what is called -> the files that may; all others go through these
PLACES = {
    "from_pretrained": {"foreign/pretrained.py"},
    "json.load": {"core/reading.py"},
    "json.loads": {"core/reading.py"},
    "Image.open": {"tasks/_pictures.py"},
    "subprocess.run": {"engines/children.py"},
    "subprocess.Popen": {"engines/children.py"},
    "subprocess.call": set(),
    "subprocess.check_call": set(),
    "subprocess.check_output": set(),
    "os.system": set(),
    "os.popen": set(),
    "os.fork": set(),
    "eval": set(),
    "exec": set(),
    "__import__": set(),
    "extractall": set(),
    "write_text": set(),
    "write_bytes": set(),
    "os.open": {WRITING, "core/reading.py", "core/scratch.py"},
    "os.fdopen": {WRITING, "core/reading.py"},
    "tempfile.mkstemp": set(),
    "torch.save": set(),
    "torch.load with pickles": set(),
    "pickle.load": set(),
    "pickle.loads": set(),
    "np.save": set(),
    "open for writing": {WRITING},
    "np.load with pickles": set(),
    # modules by a name that is not written in the code
    "import_module": {
        "core/folder.py",  # the rule itself
        "experiment/registry.py",  # the parts of a study that is installed, or that a person names
        "cli/__init__.py",  # what a person types after --import
        "cli/shared/processes.py",  # the same in each of several processes
        "experiment/parallel/orders.py",  # the same, and the study that the parent runs
        "engines/children.py",  # what the parent names
        "measure/memory.py",  # what the parent names
        "export/_extra.py",  # optional packages, named by the code
        "transfer/families.py",  # transformers' classes, named by the code
        "testing/subjects.py",  # the entries of mechanisms that were found by then
    },
}
BUILT_IN = {"eval", "exec"}
# the answer of a measuring process goes to a pipe; the kernel's file is no file; a test's buffer;
# the null device in the place of a closed stream
EXCEPTIONS = {
    ("measure/memory.py", "os.fdopen"),
    ("measure/memory.py", "write_text"),
    ("testing/behaviour.py", "torch.save"),
    ("train/_shares.py", "torch.save"),  # in Trainer's format, which a process alone reads
    ("cli/shared/endings.py", "os.open"),
    ("cli/shared/endings.py", "open for writing"),
}


def calls(source: str) -> list[tuple[int, str]]:
    """The lines and kinds of the calls in a source text that have a place of their own."""
    return [
        (node.lineno, kind)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        for kind in _kinds(node)
    ]


def _kinds(call: ast.Call) -> list[str]:
    name = ast.unparse(call.func)
    last = name.rpartition(".")[2]
    names = (name,) if last in BUILT_IN else (name, last)  # a module's eval() is another matter
    kinds = [kind for kind in names if kind in PLACES]
    if last == "open" and _writes(call, name):
        kinds.append("open for writing")
    if name == "torch.load" and not _says(call, "weights_only", "True"):
        kinds.append("torch.load with pickles")
    if name == "np.load" and not _says(call, "allow_pickle", "False"):
        kinds.append("np.load with pickles")
    if last == "import_module" and _is_of_ours(call):
        return []
    return list(dict.fromkeys(kinds))


def _writes(call: ast.Call, name: str) -> bool:
    """Whether a call of ``open`` has a mode that writes; a mode that is not written here counts."""
    given = [*call.args[(1 if name == "open" else 0) :], *(k.value for k in call.keywords)]
    modes = [argument.value for argument in given if isinstance(argument, ast.Constant)]
    return any(
        isinstance(mode, str) and len(mode) < 4 and set(mode) & set("wax+") for mode in modes
    )


def _says(call: ast.Call, keyword: str, value: str) -> bool:
    return any(k.arg == keyword and ast.unparse(k.value) == value for k in call.keywords)


def _is_of_ours(call: ast.Call) -> bool:
    """Whether the module's name begins as written here, or comes from a table of the package."""
    text = ast.unparse(call.args[0])
    return text.startswith(("f'sparing.", "'", "_HOMES[", "home"))


def strays(source: str, module: str) -> list[str]:
    """The calls of a file that belong elsewhere."""
    return [
        f"{module}:{line}: {kind}"
        for line, kind in calls(source)
        if module not in PLACES[kind] and (module, kind) not in EXCEPTIONS
    ]


def test_nobody_goes_around_what_guards_the_user():
    elsewhere = []
    for path in sorted(SOURCE.rglob("*.py")):
        elsewhere += strays(path.read_text(), path.relative_to(SOURCE).as_posix())
    assert elsewhere == []


@pytest.mark.parametrize(
    "line",
    [
        "AutoModel.from_pretrained(name)",
        "json.loads(text)",
        "Image.open(path)",
        "subprocess.run(['ls'])",
        "importlib.import_module(name)",
        "path.write_text('a')",
        "path.open('w')",
        "open(path, 'ab')",
        "open(path, mode='r+')",
        "np.load(path)",
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
        "eval(text)",
    ],
)
def test_the_rule_can_fail(line):
    assert strays(line, "cli/slim.py")


@pytest.mark.parametrize(
    "line", ["path.open()", "open(path)", "open(path, 'rb')", "np.load(path, allow_pickle=False)"]
)
def test_reading_is_free(line):
    assert strays(line, "cli/slim.py") == []
