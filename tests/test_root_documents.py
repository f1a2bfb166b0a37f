"""README, CHANGELOG and CONTRIBUTING: short, in their form, and true to the records."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

import pytest

from sparing.cli.shared.groups import PANELS

ROOT = Path(__file__).parents[1]
README, CHANGELOG, CONTRIBUTING = (
    (ROOT / f"{name}.md").read_text(encoding="utf-8")
    for name in ("README", "CHANGELOG", "CONTRIBUTING")
)
SECTIONS = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")
ENTRY_WORDS = 25


def words(text: str) -> list[str]:
    """The words outside code blocks and comments; signs of tables are none."""
    text = re.sub(r"^```.*?^```|^ {4}.*?$|<!--.*?-->", "", text, flags=re.M | re.S)
    return [word for word in text.split() if re.search(r"\w", word)]


def test_words_are_counted_outside_code():
    text = "One `two` three.\n\n    code code\n\n```python\ncode\n```\n<!-- no -->\n| four | – |\n"
    assert words(text) == ["One", "`two`", "three.", "four"]


@pytest.mark.parametrize(("text", "most"), [(README, 450), (CHANGELOG, 1200), (CONTRIBUTING, 400)])
def test_documents_are_short(text, most):
    assert len(words(text)) <= most


def test_the_readme_promises_no_release():
    installs = re.findall(r"pip install (\S+)", README)
    assert installs == [".", "./papers"]
    assert re.findall(r"^    make (\w+)", README, re.M) == ["demo", "test"]
    assert len(re.findall(r"^!\[|<img", README, re.M)) == 1


def test_every_command_of_the_readme_exists():
    verbs = {verb for group in PANELS.values() for verb in group}
    named = re.findall(r"`sparing (\w+)", README)
    assert len(named) == 4
    assert set(named) <= verbs


def test_the_readme_has_the_pooled_result_of_slim(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    table = importlib.import_module("readme_table")
    runs = importlib.import_module("slim_pool").finished(ROOT / "benchmarks" / "results")
    assert f"\n{table.slim_line(runs)}\n" in README
    assert table.slim_line(runs[:-1] if not runs[-1].labelless else runs[1:]) not in README
    sys.modules.pop("readme_table")


def wrong_entries(changelog: str) -> list[str]:
    """Entries of more than one line or too many words, and lines that are no entry."""
    lines = changelog.partition("\n## ")[2].splitlines()[1:]
    allowed = ("### ", "- ", "| ", "Names that changed:")
    wrong = [line for line in lines if line and not line.startswith(allowed)]
    return wrong + [
        line for line in lines if line.startswith("- ") and len(line.split()) > ENTRY_WORDS + 1
    ]


def test_the_changelog_keeps_its_form():
    assert CHANGELOG.startswith("# Changelog\n\n")
    assert re.findall(r"^## (.*)", CHANGELOG, re.M)[0] == "[Unreleased]"
    sections = re.findall(r"^### (.*)", CHANGELOG, re.M)
    assert sections == [name for name in SECTIONS if name in sections]
    assert {"Added", "Changed", "Removed", "Fixed"} <= set(sections)
    assert wrong_entries(CHANGELOG) == []
    names = CHANGELOG.partition("### Changed")[2].partition("\n### ")[0]
    assert "| before | now |" in names


def test_a_changelog_out_of_form_is_noticed():
    head = "# Changelog\n\n## [Unreleased]\n\n### Added\n\n"
    assert wrong_entries(f"{head}- One line.\n") == []
    assert wrong_entries(f"{head}- One line,\n  and a second.\n") == ["  and a second."]
    long = "- " + " ".join(["word"] * (ENTRY_WORDS + 1))
    assert wrong_entries(head + long) == [long]


def test_contributing_names_packages_that_exist():
    table = CONTRIBUTING.partition("| --- |")[2].partition("\n\n")[0]
    named = re.findall(r"^\| `src/sparing/` ([a-z, ]+) \|", table, re.M)
    packages = [name for row in named for name in row.split(", ")]
    packages += re.findall(r"^\| `src/sparing/(\w+)/`", table, re.M)
    present = {path.parent.name for path in (ROOT / "src/sparing").glob("*/__init__.py")}
    assert set(packages) == present - {"foreign"}
    for folder in re.findall(r"^\| `(\w+)/`", table, re.M):
        assert (ROOT / folder).is_dir()
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"^    make ([\w-]+)", CONTRIBUTING, re.M):
        assert f"\n{target}:" in makefile
