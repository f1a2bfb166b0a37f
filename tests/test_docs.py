"""The documentation: examples run, commands parse, links lead somewhere, sentences are short."""

from __future__ import annotations

import functools
import importlib
import posixpath
import re
import shlex
import subprocess
import sys
from dataclasses import fields
from fnmatch import fnmatch
from pathlib import Path

import pytest
import typer

import sparing
from sparing.cli import application, main
from sparing.core.catalogue import MECHANISMS
from sparing.experiment.installed import study_names
from sparing.slim.options import Options

ROOT = Path(__file__).parents[1]
DASH = "\N{EN DASH}"
DOCS = ROOT / "docs"
GENERATED = [
    f"reference/{path}"
    for path in (
        "commands/*",
        "mechanisms/*",
        "records/*",
        "mechanism-speed.md",
        "models.md",
        "task-facts.md",
    )
]
WRITTEN = {
    name: DOCS / name
    for name in sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))
    if not any(fnmatch(name, pattern) for pattern in GENERATED)
}
PAGES = {"README.md": ROOT / "README.md", **WRITTEN}
FENCE = re.compile(r"^ *(`{3,}|:{3,}).*?^ *\1`*:* *$", re.M | re.S)
PYTHON = re.compile(r"^```python\n(.*?)^```", re.M | re.S)
SHELL = re.compile(r"^```sh\n(.*?)^```", re.M | re.S)
TOCTREE = re.compile(r"^```\{toctree\}\n(.*?)^```", re.M | re.S)
LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)|:link: (\S+)")
LONGEST, USUAL = 40, 25
COMPARISON = "tutorials/first-comparison.md"  # trains; its commands are run too
WHOLE = "tutorials/faster-encoder.md"
# Their code opens what their commands make.
WALKS = ("embeddings", "guard", "reranker", "entities", "images")
WITH_COMMANDS = (WHOLE, *(f"tutorials/faster-{walk}.md" for walk in WALKS))
# Their Python needs the classifier of the tutorial, each page that of the pages before it too.
CONTINUED = ("how-to/slim.md", "how-to/agree.md", "how-to/predict.md")
BLOCK = re.compile(r"^```(?:python|sh)\n.*?^```", re.M | re.S)


def commands(text):
    """The lines of sparing in the blocks of shell, each with its continued lines."""
    lines = [
        line for block in SHELL.findall(text) for line in block.replace("\\\n", "").split("\n")
    ]
    return [shlex.split(line, comments=True) for line in lines if line.startswith("sparing ")]


def sentences(text):
    """The prose of a page, sentence by sentence: no code, tables, headings or comments."""
    text = re.sub(r"<!--.*?-->", "", text, flags=re.S)
    text = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    text = re.sub(r"^ *(\||#|:::|:\w+:|<).*$", "", text, flags=re.M)
    text = re.sub(r"`[^`\n]+`", "code", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text).replace("*", "")
    paragraphs = re.split(r"\n\s*\n|^ *(?:[-+]|\d+\.) ", text, flags=re.M)
    for paragraph in filter(None, paragraphs):
        yield from re.split(r"(?<=[.!?])\s+", " ".join(paragraph.split()))


def lengths(text):
    return sorted(
        len(sentence.split()) for sentence in sentences(text) if len(sentence.split()) > 2
    )


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(name, marks=pytest.mark.slow) if name in (COMPARISON, *WITH_COMMANDS) else name
        for name in PAGES
        if name not in CONTINUED
    ],
)
def test_examples_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "example"}
    for block in BLOCK.findall(PAGES[page].read_text()):
        for code in PYTHON.findall(block):
            exec(compile(code, page, "exec"), names)
        for words in commands(block) if page in WITH_COMMANDS else ():
            subprocess.run([sys.executable, "-m", *words], check=True)


@pytest.mark.slow
def test_examples_with_the_classifier_of_the_tutorial_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    classifier, *_ = PYTHON.findall(PAGES[WHOLE].read_text())
    codes = [code for page in CONTINUED for code in PYTHON.findall(PAGES[page].read_text())]
    assert len(codes) == len(CONTINUED)
    for code in (classifier, *codes):
        exec(compile(code, WHOLE, "exec"), {"__name__": "example"})
    assert (tmp_path / "runs" / "slim" / "model" / "serve").is_dir()
    assert "answers" in capsys.readouterr().out


@functools.cache
def verbs():
    return typer.main.get_command(application()).commands


def unknown(words):
    """What a command names that does not exist: its verb, or options."""
    verb, *arguments = words[3:] if words[1] == "--import" else words[1:]
    if verb not in verbs():
        return [verb]
    command = verbs()[verb]
    if parts := getattr(command, "commands", None):  # words that name no part go to the first one
        command = parts.get(next(iter(arguments), ""), next(iter(parts.values())))
    known = {name for p in command.params for name in (*p.opts, *p.secondary_opts)}
    given = {word.partition("=")[0] for word in arguments if re.match(r"--?[a-z]", word)}
    return sorted(given - known - {"--help"})


def test_commands_name_verbs_and_options_that_exist():
    wrong = {
        (page, *words): names
        for page, path in WRITTEN.items()
        for words in commands(path.read_text())
        if (names := unknown(words))
    }
    assert wrong == {}
    assert unknown(["sparing", "slim", "m", "--sped", "2"]) == ["--sped"]
    assert unknown(["sparing", "slimm", "m"]) == ["slimm"]


@pytest.mark.slow
def test_the_commands_of_the_tutorials_run(tmp_path, monkeypatch):
    """All of them in order, but those of five seeds and those that need a MODEL of one's own."""
    monkeypatch.chdir(tmp_path)
    pages = (COMPARISON, "tutorials/reading-a-page.md")
    lines = [words for page in pages for words in commands(WRITTEN[page].read_text())]
    chosen = [words for words in lines if not {"5", "MODEL"} & set(words)]
    assert [words[1] for words in chosen] == ["compare", "compare", "report"]
    for words in chosen:
        subprocess.run([sys.executable, "-m", *words], check=True)
    assert (tmp_path / "runs" / "first" / "report.html").exists()


CHEAP = ("list", "show", "doctor", "calculate")


@pytest.mark.parametrize("page", ["reference/command-line.md", "how-to/calculate.md"])
def test_cheap_commands_run(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for words in commands(WRITTEN[page].read_text()):
        if words[1] in CHEAP and not {"train", "web", "--model"} & set(words):
            with pytest.raises(SystemExit) as ended:
                main(words[1:])
            assert (words, ended.value.code) == (words, 0)
            assert capsys.readouterr().out


def test_commands_are_read_with_their_continued_lines():
    text = "```sh\nsparing list --traits  # all\nls\nsparing slim a \\\n    --speed 2\n```\n"
    assert commands(text) == [
        ["sparing", "list", "--traits"],
        ["sparing", "slim", "a", "--speed", "2"],
    ]


@functools.cache
def generated_names():
    parts = {
        "mechanisms": MECHANISMS.names(),
        "commands": verbs(),
        "records": [*study_names(), "advise", "agree"],
    }
    named = {f"reference/{part}/{name}.md" for part, names in parts.items() for name in names}
    named |= {f"reference/{part}/index.md" for part in parts}
    pages = ("mechanism-speed", "models", "task-facts")
    return named | {f"reference/{page}.md" for page in pages}


def targets(page, text):
    """What a page of the docs links to, as paths below docs."""
    folder = posixpath.dirname(page)
    for match in LINK.finditer(text):
        link = match[1] or match[2] + ".md"
        if not match[2] or "://" not in link:
            yield posixpath.normpath(posixpath.join(folder, link))


def test_links_lead_somewhere():
    missing = {
        page: [
            link
            for link in targets(page, path.read_text())
            if link not in generated_names() and not (DOCS / link).exists()
        ]
        for page, path in WRITTEN.items()
    }
    assert {page: links for page, links in missing.items() if links} == {}


def test_the_links_of_the_readme_lead_somewhere():
    links = LINK.findall(PAGES["README.md"].read_text())
    assert [link for link, _ in links if not (ROOT / link).exists()] == []


def test_every_page_is_reachable_from_the_index():
    names = {*WRITTEN, *generated_names()}
    reached, todo = set(), ["index.md"]
    while todo:
        page = todo.pop()
        if page in reached or page not in names:
            continue
        reached.add(page)
        if page in WRITTEN:
            text = WRITTEN[page].read_text()
            todo += [*targets(page, text), *listed(page, text, names)]
        elif page.endswith("index.md"):
            todo += [name for name in names if posixpath.dirname(name) == posixpath.dirname(page)]
    assert names - reached == set()


def listed(page, text, names):
    """The pages in the tables of contents of a page."""
    folder = posixpath.dirname(page)
    for block in TOCTREE.findall(text):
        for entry in block.split("\n"):
            if entry and not entry.startswith(":"):
                pattern = posixpath.normpath(posixpath.join(folder, entry)) + ".md"
                yield from (name for name in names if fnmatch(name, pattern))


def complaints(text):
    """Sentences above the longest, or the length that nine of ten sentences keep to."""
    long = [sentence for sentence in sentences(text) if len(sentence.split()) > LONGEST]
    counts = lengths(text)
    usual = counts[int(0.9 * (len(counts) - 1))] if counts else 0
    return long + [f"nine of ten sentences have up to {usual} words"] * (usual > USUAL)


def test_sentences_are_short():
    wrong = {page: complaints(path.read_text()) for page, path in WRITTEN.items()}
    assert {page: faults for page, faults in wrong.items() if faults} == {}
    assert len(complaints("word " * 41)) == 2
    assert complaints("word " * 25) == []


def test_sentences_are_counted_without_code_tables_and_headings():
    text = "# A b c\n\nOne two three. Four `a b c` [five six](x.md)?\n\n| a |\n\n- Seven eight\n"
    assert list(sentences(text)) == ["One two three.", "Four code five six?", "Seven eight"]
    assert lengths(text) == [3, 4]


def test_the_readme_counts_the_mechanisms():
    assert f"## {len(MECHANISMS.names())} mechanisms" in PAGES["README.md"].read_text()


@pytest.fixture(scope="module")
def site():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(DOCS / "_ext"), str(ROOT / "benchmarks"), *sys.path])
        yield importlib.import_module("generated")


@pytest.fixture(scope="module")
def generated(site):
    return site.pages()


def test_the_generated_pages_are_those_that_are_linked(generated):
    assert set(generated) == generated_names()


def test_the_examples_of_the_generated_pages_run(generated):
    blocks = [block for text in generated.values() for block in PYTHON.findall(text)]
    assert len(blocks) == len(MECHANISMS.names())
    for block in blocks:
        exec(compile(block, "generated", "exec"), {"__name__": "example"})


def test_a_page_is_the_same_each_time(site, generated):
    again = importlib.import_module("mechanism_pages")
    findings = again.read(again.newest())
    for name in ("kerformer", "bigbird"):  # both sample when they are built
        page = generated[f"reference/mechanisms/{name}.md"]
        assert again.mechanism_page(name, findings) == page


def test_every_public_name_is_documented():
    text = "".join(path.read_text() for path in (DOCS / "reference" / "api").glob("*.md"))
    documented = set(re.findall(r"^\.\. auto\w+:: sparing\.(\w+)$", text, re.M))
    packages = {"__version__", "mechanisms", "testing"}  # testing has a page of its own
    assert set(sparing.__all__) - packages == documented


def test_the_settings_of_slim_exist():
    _, _, settings = WRITTEN["how-to/slim.md"].read_text().partition("## Settings")
    named = set(re.findall(r"`(\w+)=", settings.partition("## ")[0]))
    assert "static_control" in named
    assert named <= {field.name for field in fields(Options)}


def test_the_page_of_a_mechanism_has_what_show_prints(generated):
    page = generated["reference/mechanisms/linformer.md"]
    for part in ("## Traits", "## Cost", "arXiv 2006.04768", "`slots`", "**What differs.**"):
        assert part in page
    assert "| causal | no |" in page
    assert "`key_projection`" in page


def test_the_table_of_models_and_verbs_is_made_by_the_verbs(generated):
    page = generated["reference/models.md"]
    rows = re.findall(r"^\| ([^|`]+) \| `\w+` \| (.+) \|$", page, re.M)
    cells = {answer: line.split(" | ") for answer, line in rows}
    slim = [line[0] for line in cells.values()]
    assert slim == ["yes"] * 7
    assert cells["one class of an image"][1] == DASH  # agree reads texts
    assert {line[2] for line in cells.values()} == {"yes"}  # export takes all


def test_the_page_of_a_verb_has_its_options(generated):
    page = generated["reference/commands/slim.md"]
    assert "sparing slim [OPTIONS] MODEL" in page
    assert re.search(r"^\| `--speed` \| .+ \| `2` \|$", page, re.M)


def test_the_page_of_a_verb_has_its_parts(site):
    app = typer.Typer()
    parts = typer.Typer(help="Add.")
    app.add_typer(parts, name="sum")

    @parts.command("prove")
    def prove(steps: int = 3):
        """Prove it."""

    @parts.command("web")
    def web(): ...

    verb = typer.main.get_command(app).commands["sum"]
    page = importlib.import_module("command_pages").verb_page("sum", verb)
    assert "## prove\n\nProve it.\n\n```text\nsparing sum prove [OPTIONS]\n```" in page
    assert "| `--steps` |  | `3` |" in page


def test_the_records_of_a_study_have_units(generated):
    assert "| `accuracy` | share |" in generated["reference/records/compare.md"]
    assert "label `arm` names the variant" in generated["reference/records/index.md"]


def test_docstrings_keep_their_signs(site):
    docstrings = importlib.import_module("docstrings")
    lines = ["Takes `q_k` and |x| of a_b.", "", "    f(x)", "", "    g(y)", "", "End."]
    assert docstrings.restructured(lines) == [
        *("Takes ``q_k`` and \\|x\\| of a\\_b.", "", ".. code-block:: python", "", "    f(x)"),
        *("", "    g(y)", "", "End.", ""),
    ]


def test_pages_are_written_only_where_they_change(site, tmp_path, monkeypatch):
    monkeypatch.setattr(site, "pages", lambda: {"reference/a.md": "one"})
    site.write(tmp_path)
    page = tmp_path / "reference" / "a.md"
    before = page.stat().st_mtime_ns
    site.write(tmp_path)
    assert (page.read_text(), page.stat().st_mtime_ns) == ("one", before)
