"""Small and plain: sizes, annotations, docstrings, words."""

from __future__ import annotations

import ast
import io
import re
import tokenize
import tomllib
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


# Words that say little to a reader: what to write instead, and the areas that still use them.
WORDS = {
    r"reckon\w*": ("compute", ""),
    r"takes? arithmetic|(?:less|more|as much|executed|mean|equal) arithmetic": ("FLOPs", ""),
    r"(?:of|in) (?:the|its) arithmetic": ("FLOPs", ""),
    r"tells?|(?:is|are|was|were) told": ("shows, reports, prints", ""),
    r"asks?|asked": ("needs, requests; evaluated on, measured on", ""),
    r"judges?|judged|judging": ("evaluate, decide", ""),
    r"right answers?": ("accuracy", "benchmarks"),
    # Committed claims of Kerformer and Linformer are named after rivals.
    r"(?<!settle it, )rivals?": ("baseline, candidate", "papers/kerformer"),
    # The engine's word; goals of committed runs are named after the "better dense arm" and others.
    r"(?-i:(?<!better dense )(?<!other linear )(?<!['.])[Aa]rms?)": (
        "variant",
        "src/experiment",
    ),
    r"leavers?|(?:leave|leaves|left) early": ("early exits, exit rate", ""),
    r"stretch(?:es)?": ("segments", ""),
    r"polish(?:es|ed|ing)?": ("fine-tune at fixed width", ""),
    r"standing": ("existing", ""),
    r"stands?|stood": ("is, holds", ""),
    r"lies?|lay": ("is", ""),
    r"apart": ("separate, different", ""),
    r"drawn": ("sampled; plotted, shown", ""),
    r"storeys?": ("layers", ""),
    r"idle": ("skipped", ""),
    r"sets of instructions": ("instruction sets", ""),
    r"(?:million|learned|optimiser's) numbers": ("parameters, state", ""),
    r"pieces? of work|in pieces": ("cell, unit of work; parts", "src/mechanisms"),
    r"ours|theirs": ("candidate, baseline", ""),
    r"who|whoever": ("the thing itself", ""),
    r"whose": ("with, its", "src/slim CHANGELOG.md"),
}
# Names of goals in committed runs: they identify the goal, and do not change.
GOALS = (
    "0.9 asked for",
    "0.3 asked for",
    "means of as many stretches",
    "right answers kept by",
    "its right answers less",
    "ours:",
)
NAMES = {"found", "told", "asked", "own", "each", "place", "kept", "wanted"}
WITHIN_NAMES = re.compile("judg", re.I)
# Pages that the site writes from modules, which are read themselves.
GENERATED = re.compile(
    r"docs/reference/(commands/|mechanisms/|records/|mechanism-speed|task-facts)"
)
SPAN = re.compile(r"``.*?``|`[^`\n]*`", re.S)


def prose(path: Path) -> str:
    """The comments, docstrings and texts of a module or table, or a page without its code.

    A string without a space is a name, not a text; so are the names of goals. What is filled in
    between braces is left out.
    """
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        text = re.sub(r"^```.*?^```|^ {4}\S.*?$", "", text, flags=re.M | re.S)
    elif path.suffix == ".toml":
        text = "\n".join([*re.findall(r"^#.*", text, re.M), *_values(tomllib.loads(text))])
    else:
        texts = (tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", -1))
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        text = "\n".join(t.string for t in tokens if t.type in texts and " " in t.string.strip())
    for goal in GOALS:
        text = text.replace(goal, "")
    return SPAN.sub("", re.sub(r"\{[^{}\n]*\}", "", text))


def _values(entry: object) -> Iterator[str]:
    """The texts of a parsed table, without the goals that it names."""
    if isinstance(entry, dict):
        yield from (text for key in entry if key != "goals" for text in _values(entry[key]))
    elif isinstance(entry, list):
        yield from (text for one in entry for text in _values(one))
    elif isinstance(entry, str) and " " in entry.strip():
        yield entry


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
    """Area and prose of every module, table and written page; the decisions stay as they were."""
    patterns = (
        *("*.md", "docs/**/*.md", "papers/*.md", "papers/sparing_papers/**/*.md"),
        *("src/sparing/**/*.py", "src/sparing/**/*.md", "papers/sparing_papers/**/*.py"),
        *("src/sparing/**/*.toml", "papers/sparing_papers/**/*.toml", "benchmarks/*.py"),
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
    table = tmp_path / "records.toml"
    table.write_text('# Drawn.\nmeans = "A stretch"\nlabels = ["told"]\ngoals = ["who asks"]\n')
    texts = {"src/cli": module, "README.md": page, "src/slim": table}
    assert unexpected(count_words((where, prose(path)) for where, path in texts.items())) == {
        r"reckon\w*": ("compute", {"src/cli": 1}),
        r"tells?|(?:is|are|was|were) told": ("shows, reports, prints", {"src/cli": 1}),
        r"stretch(?:es)?": ("segments", {"src/slim": 1}),
        r"drawn": ("sampled; plotted, shown", {"src/slim": 1}),
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
    # a run's page lists changed answers with their texts, which are the data's own
    files = [path for path in files if path.name != "report.md"]
    texts = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in files}
    for folder in (ROOT / "benchmarks" / "results").iterdir():
        if (stored := stored_path(folder / RECORDS)) is not None:
            texts[folder.name] = read_stored(stored).decode()
    assert len(texts) > 90
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
    return [
        name for name in names if name and (name.strip("_") in NAMES or WITHIN_NAMES.search(name))
    ]


def test_names_say_what_a_thing_is():
    files = [*FILES, *(ROOT / "tests").glob("*.py")]
    files += [path for folder in NAMED_TESTS for path in (ROOT / folder).rglob("*.py")]
    assert {f: names for f in files if (names := vague_names(f.read_text()))} == {}
    assert [f for f in files if WITHIN_NAMES.search(f.stem)] == []
    source = "def f(own):\n    found = [each for each in own]\n    records = 1\n"
    assert sorted(vague_names(source)) == ["each", "found", "own"]
    private = "def _told(kept_patches, last_judges):\n    self._kept = is_kept = 1\n"
    assert sorted(vague_names(private)) == ["_kept", "_told", "last_judges"]
    text = "from claims import decide as judge\nclass Judged: ...\n"
    assert sorted(vague_names(text)) == ["Judged", "judge"]


SENTENCE_WORDS = 30
SENTENCES = re.compile(r"""(?<=[.!?])["')]?\s+(?=[A-Z0-9`"'(])""")
PARAGRAPHS = re.compile(r"\n\s*[-*] |\n\s*\n")
# A list of formulas, symbols or references is as long as the thing that it describes.
FORMULAS = re.compile(r"^(Formula|Symbols|Source):| = ")


def long_sentences(source: str) -> list[str]:
    """Sentences of docstrings and comments with more than 30 words, except formulas."""
    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    strings = [t.string for t in tokens if t.type == tokenize.STRING and '"""' in t.string[:4]]
    comments = re.findall(r"(?:^ *# .*\n)+", source, re.M)
    texts = [text.strip('"ru') for text in strings]
    texts += [re.sub(r"^ *# ", "", text, flags=re.M) for text in comments]
    sentences = (
        " ".join(sentence.split())
        for text in texts
        for paragraph in PARAGRAPHS.split(text)
        for sentence in SENTENCES.split(paragraph)
    )
    return [s for s in sentences if len(s.split()) > SENTENCE_WORDS and not FORMULAS.search(s)]


def test_sentences_are_short():
    files = [*FILES, *sorted((ROOT / "benchmarks").glob("*.py"))]
    assert {f.name: wrong for f in files if (wrong := long_sentences(f.read_text()))} == {}


def test_a_long_sentence_is_noticed():
    words = " ".join(["word"] * SENTENCE_WORDS)
    assert long_sentences(f'"""A {words}."""\n') == [f"A {words}."]
    assert long_sentences(f"# A\n# {words}\n") == [f"A {words}"]
    assert long_sentences(f'"""Some.\n\nFormula: x {words}. A {words[5:]}."""\n') == []
    assert long_sentences(f'"""{words}.\n\n- {words}\n- {words}\n"""\n') == []


GOT = re.compile(r"(?:,| but) got\b")


def test_an_error_names_the_value_behind_a_semicolon():
    assert {f.name: wrong for f in FILES if (wrong := GOT.findall(prose(f)))} == {}
    assert not GOT.search("batch_size must be at least 1; got 0")
    assert GOT.search("batch_size must be at least 1, got 0")
