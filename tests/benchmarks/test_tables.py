"""The generated tables of the documentation are those of the committed runs."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from tests.benchmarks.conftest import FOLDER


@pytest.fixture
def tables():
    return importlib.import_module("tables")


def test_committed_tables_are_current():
    """In a process of its own, where records are read faster."""
    command = [sys.executable, str(FOLDER / "tables.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_table_stands_on_a_page(tables):
    text = "".join(page.read_text(encoding="utf-8") for page in tables.pages())
    assert [name for name in tables.tables() if f"<!-- generated: {name} -->" not in text] == []
    assert ": begin -->" not in text


def test_a_page_that_would_change_is_named_and_left(tables, tmp_path, monkeypatch, capsys):
    page = tmp_path / "page.md"
    page.write_text("<!-- generated: x -->\nold\n<!-- end -->\n")
    monkeypatch.setattr(tables, "ROOT", tmp_path)
    monkeypatch.setattr(tables, "pages", lambda: iter([page]))
    monkeypatch.setattr(tables, "tables", lambda: {"x": lambda: "| t |"})
    monkeypatch.setattr("sys.argv", ["tables.py", "--check"])
    with pytest.raises(SystemExit, match="make tables"):
        tables.main()
    assert (capsys.readouterr().out, "old" in page.read_text()) == ("page.md\n", True)
    monkeypatch.setattr("sys.argv", ["tables.py"])
    tables.main()
    assert "| t |" in page.read_text()


def test_only_what_is_between_the_marks_is_replaced(tables):
    text = "a\n<!-- generated: x y -->\nold\n<!-- end -->\nb <!-- end -->\n"
    new = "a\n<!-- generated: x y -->\n\n| t |\n\n<!-- end -->\nb <!-- end -->\n"
    assert tables.filled(text, {"x y": lambda: "| t |"}) == new
    assert tables.filled(new, {"x y": lambda: "| t |"}) == new


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<!-- generated: y -->\n<!-- end -->\n", "no table is called 'y'; there are: x"),
        ("<!-- generated: x -->\nno end", "has no line <!-- end -->"),
    ],
)
def test_wrong_marks_are_named(tables, text, message):
    with pytest.raises(SystemExit, match=message):
        tables.filled(text, {"x": lambda: ""})
