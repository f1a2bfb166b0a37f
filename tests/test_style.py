"""Small and plain: sizes, annotations, docstrings, words."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from sparing.core.compressed import read_stored, stored_path
from sparing.core.record import RECORDS

ROOT = Path(__file__).parents[1]
FILES = sorted(
    path
    for folder in ("src/sparing", "papers/sparing_papers")
    for path in (ROOT / folder).rglob("*.py")
)
# Folders of tests and benchmarks whose names say what a thing is too.
NAMED_TESTS = (
    "benchmarks",
    "papers/tests",
    "tests/advise",
    "tests/benchmarks",
    "tests/calculator",
    "tests/cli",
    "tests/compare",
    "tests/contract",
    "tests/core",
    "tests/experiment",
    "tests/export",
    "tests/foreign",
    "tests/fuzz",
    "tests/layers",
    "tests/measure",
    "tests/mechanisms",
    "tests/models",
    "tests/predictors",
    "tests/report",
    "tests/slim",
    "tests/tasks",
    "tests/train",
    "tests/transfer",
    "tests/witnesses",
)
FILE_LINES, FUNCTION_LINES = 400, 40
BANNED = re.compile(r"(Manager|Helper|Utils?|Base)$")
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK|NotImplementedError)\b")


def complaints(source: str) -> list[str]:
    """What a source file does against the house style."""
    problems = []
    if source.count("\n") > FILE_LINES:
        problems.append(f"{source.count(chr(10))} lines")
    problems += [f"unfinished: {match.group()}" for match in UNFINISHED.finditer(source)]
    tree = ast.parse(source)
    if not ast.get_docstring(tree):
        problems.append("no module docstring")
    inner = {id(b) for a in ast.walk(tree) if _is_function(a) for b in ast.walk(a) if b is not a}
    for node in ast.walk(tree):
        if _is_function(node):
            problems += _function(node, public=id(node) not in inner)
        if isinstance(node, ast.ClassDef):
            if BANNED.search(node.name):
                problems.append(f"class {node.name}: says nothing")
            if not node.name.startswith("_") and not ast.get_docstring(node):
                problems.append(f"class {node.name}: no docstring")
    return problems


def _is_function(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def _function(node: ast.FunctionDef, public: bool) -> list[str]:
    problems = []
    lines = node.end_lineno - node.lineno + 1
    if lines > FUNCTION_LINES:
        problems.append(f"{node.name}: {lines} lines")
    if node.returns is None:
        problems.append(f"{node.name}: no return annotation")
    if public and not node.name.startswith("_") and not ast.get_docstring(node):
        problems.append(f"{node.name}: no docstring")
    return problems


def test_files_are_small_plain_and_documented():
    by_file = {str(path.relative_to(ROOT)): complaints(path.read_text()) for path in FILES}
    assert {path: wrong for path, wrong in by_file.items() if wrong} == {}


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
    lines, missing = source.splitlines(), []
    for node in ast.walk(ast.parse(source)):
        body = node.body[1:] if isinstance(node, ast.ClassDef) else []
        if sum(isinstance(part, ast.AnnAssign) for part in body) > MANY_FIELDS:
            missing += [f"{node.name}.{name}" for name in _open_fields(body, lines)]
    return missing


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


# Words that say little to a reader: what to write instead, and where they are still used. Take an
# area off its line when its texts are mended.
WORDS = {
    r"reckon\w*": (
        "compute",
        "",
    ),
    r"takes? arithmetic|(?:less|more|as much) arithmetic|share of the arithmetic": (
        "FLOPs",
        "",
    ),
    r"(?:is|are|was|were) told": (
        "shown, reported",
        "",
    ),
    r"ask(?:s|ed) of": (
        "evaluated on, measured on",
        "",
    ),
    r"judges?|judged|judging": (
        "evaluate, decide",
        "",
    ),
    r"right answers?": (
        "accuracy",
        "papers/kerformer",
    ),
    # Committed claims of Kerformer and Linformer are named after rivals.
    r"(?<!settle it, )rivals?": (
        "baseline, candidate",
        "papers/kerformer",
    ),
    # The engine's word; goals of committed runs are named after the "better dense arm" and others.
    r"(?-i:(?<!better dense )(?<!other linear )(?<!['.])[Aa]rms?)": (
        "variant",
        "src/experiment CHANGELOG.md",
    ),
    r"leavers?|(?:leave|leaves|left) early": (
        "early exits, exit rate",
        "",
    ),
    r"stretch(?:es)?": (
        "segments",
        "papers/linformer",
    ),
    r"polish(?:es|ed|ing)?": (
        "fine-tune at fixed width",
        "",
    ),
    r"standing": (
        "existing",
        "",
    ),
    r"storeys?": (
        "layers",
        "",
    ),
    r"idle": (
        "skipped",
        "",
    ),
    r"sets of instructions": (
        "instruction sets",
        "",
    ),
    r"theirs": (
        "the baseline's",
        "",
    ),
    r"who|whoever": (
        "the thing itself",
        "",
    ),
}
NAMES = {"found", "told", "asked", "own", "each", "place", "kept", "wanted"}
# Pages that the site writes from modules, which are read themselves.
GENERATED = re.compile(
    r"docs/reference/(commands/|mechanisms/|records/|mechanism-speed|task-facts)"
)
SPAN = re.compile(r"``.*?``|`[^`\n]*`", re.S)


def prose(path: Path) -> str:
    """The comments, docstrings and texts of a module, or a page without its code.

    A string without a space is a name, not a text. What is filled in between braces is left out.
    """
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        text = re.sub(r"^```.*?^```|^ {4}\S.*?$", "", text, flags=re.M | re.S)
    else:
        texts = (tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", -1))
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        text = "\n".join(t.string for t in tokens if t.type in texts and " " in t.string.strip())
    return SPAN.sub("", re.sub(r"\{[^{}\n]*\}", "", text))


def area(path: str) -> str:
    """A package of the library or of the papers, docs, or a document at the root."""
    first, *rest = path.split("/")
    if first in ("src", "papers") and len(rest) > 1:
        return f"{first}/{rest[1]}"
    return path if not rest else first


def count_words(texts: Iterable[tuple[str, str]]) -> dict[str, Counter[str]]:
    """How often every word is used in every area, of areas and their texts."""
    counts: dict[str, Counter[str]] = {word: Counter() for word in WORDS}
    for where, text in texts:
        for word, count in counts.items():
            count[where] += len(re.findall(rf"(?<![\w-])(?:{word})(?![\w-])", text, re.I))
    return counts


def texts_of(root: Path) -> Iterator[tuple[str, str]]:
    """Area and prose of every module and written page; the decisions stay as they were."""
    patterns = (
        *("*.md", "docs/**/*.md", "papers/*.md", "papers/sparing_papers/**/*.md"),
        *("src/sparing/**/*.py", "src/sparing/**/*.md", "papers/sparing_papers/**/*.py"),
    )
    for path in (path for pattern in patterns for path in sorted(root.glob(pattern))):
        name = path.relative_to(root).as_posix()
        if "decisions" not in path.parts and not GENERATED.match(name):
            yield area(name), prose(path)


def unexpected(counts: dict[str, Counter[str]]) -> dict[str, tuple[str, dict[str, int]]]:
    """Words where they should not be: what to write instead, and how often in which area."""
    misused = {}
    for word, (instead, allowed) in WORDS.items():
        areas = {where: uses for where, uses in counts[word].items() if uses}
        if wrong := {where: uses for where, uses in areas.items() if where not in allowed.split()}:
            misused[word] = (instead, wrong)
    return misused


def test_texts_use_the_words_of_the_field():
    assert unexpected(count_words(texts_of(ROOT))) == {}


def test_a_word_to_replace_is_noticed(tmp_path):
    module = tmp_path / "module.py"
    module.write_text(
        "STANDING = 'standing'  # Reckoned anew.\ndef f(who):\n    return f'{who} is told'\n"
    )
    page = tmp_path / "page.md"
    page.write_text("`polish` {arm}.\n\n    polish\n\nThe dense rival leaves early, an arm not.\n")
    assert unexpected(count_words([("src/cli", prose(module)), ("README.md", prose(page))])) == {
        r"reckon\w*": ("compute", {"src/cli": 1}),
        r"(?:is|are|was|were) told": ("shown, reported", {"src/cli": 1}),
        r"(?<!settle it, )rivals?": ("baseline, candidate", {"README.md": 1}),
        r"(?-i:(?<!better dense )(?<!other linear )(?<!['.])[Aa]rms?)": (
            "variant",
            {"README.md": 1},
        ),
        r"leavers?|(?:leave|leaves|left) early": ("early exits, exit rate", {"README.md": 1}),
    }


# In names too: of variables, cells, records and labels.
REPLACED = re.compile(r"polish|(?<!ar)rival|judg", re.I)
NAMED = ("src/sparing/advise", "src/sparing/export", "src/sparing/slim", "benchmarks")


def replaced_names(text: str) -> list[str]:
    """Words of a text, or of a module, that have a replaced word in them."""
    return [word for word in re.findall(r"[\w-]+", text) if REPLACED.search(word)]


def test_names_of_slim_and_the_benchmarks_use_the_words_of_the_field():
    folders = [ROOT / name for name in NAMED]
    files = [
        p for folder in folders for kind in ("py", "toml", "md") for p in folder.rglob(f"*.{kind}")
    ]
    texts = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in files}
    for folder in (ROOT / "benchmarks" / "results").iterdir():
        if (stored := stored_path(folder / RECORDS)) is not None:
            texts[folder.name] = read_stored(stored).decode()
    assert len(texts) > 100
    assert {name: words for name, text in texts.items() if (words := replaced_names(text))} == {}


def test_a_name_to_replace_is_noticed():
    text = '{"cell": "rival/window", "labels": {"judged": true}, "name": "polished_plan"}'
    assert replaced_names(text) == ["rival", "judged", "polished_plan"]
    assert replaced_names("arrivals") == []


def vague_names(source: str) -> list[str]:
    """What a source names (a variable, argument, function, attribute) without saying what it is."""
    names: list[str | None] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.append(node.id if isinstance(node, ast.Name) else node.attr)
        elif isinstance(node, ast.arg | ast.alias):
            names.append(node.arg if isinstance(node, ast.arg) else node.asname)
        elif _is_function(node) or isinstance(node, ast.ClassDef | ast.ExceptHandler):
            names.append(node.name)
    return [name for name in names if name in NAMES]


def test_names_say_what_a_thing_is():
    files = [*FILES, *(ROOT / "tests").glob("*.py")]
    files += [path for folder in NAMED_TESTS for path in (ROOT / folder).rglob("*.py")]
    assert {f: names for f in files if (names := vague_names(f.read_text()))} == {}
    assert len(files) > len(FILES) + 100
    assert all((ROOT / folder).is_dir() for folder in NAMED_TESTS)


@pytest.mark.parametrize(
    "source",
    [
        "found = 1",
        "[each for each in records]",
        "def f(own): ...",
        "def told(): ...",
        "import a as kept",
        "self.place = 1",
        "try: ...\nexcept ValueError as wanted: ...",
    ],
)
def test_a_vague_name_is_noticed(source):
    assert len(vague_names(source)) == 1
    assert vague_names("records.found = found.read(each)") == ["found"]
