"""Tables as data, estimates as cells, and the sentences of a page."""

import pytest

from sparing.core.record import Record
from sparing.report.estimates import NONE, interval_text, p_text, points_text, share_text
from sparing.report.prose import Prose
from sparing.report.table import Column, table


def record(value, interval=None):
    return Record("accuracy", value, "share", "measured", interval=interval)


def test_a_column_writes_its_cell_for_every_row():
    block = table(
        "sizes",
        "Sizes",
        "In words.",
        [2, 3],
        [Column("n", str), Column("n²", lambda n: f"{n * n}")],
    )
    assert block.heads == ("n", "n²")
    assert block.rows == (("2", "4"), ("3", "9"))


def test_a_table_without_rows_keeps_its_explanation():
    block = table("sizes", "Sizes", "Nothing ran.", [], [Column[int]("n", str)])
    assert (block.rows, block.explain) == ((), "Nothing ran.")


@pytest.mark.parametrize("text", [share_text, points_text])
def test_what_was_not_measured_is_a_dash(text):
    assert text(None) == text(record(None)) == NONE


def test_an_interval_has_the_form_of_its_value():
    assert interval_text(record(0.5, (0.25, 0.75)), "{:.2f}".format) == "0.50 (0.25 to 0.75)"
    assert interval_text(record(0.5), "{:.2f}".format) == "0.50"
    assert interval_text(record(2.0, (1.0, 3.0)), "{:.0f}".format, "x") == "2x (1 to 3)"
    assert interval_text(None, "{:.0f}".format, "x") == NONE


def test_points_have_two_decimals_where_all_are_small():
    assert points_text(record(0.001, (0.0005, 0.002))) == "+0.10 (+0.05 to +0.20)"
    assert points_text(record(0.001, (-0.05, 0.052))) == "+0.1 (\N{MINUS SIGN}5.0 to +5.2)"


@pytest.mark.parametrize(("p", "text"), [(0.0004, "under 0.001"), (0.04, "0.040"), (None, NONE)])
def test_a_p_value_in_words(p, text):
    assert p_text(p) == text


def test_prose_joins_lines_and_fills_in(tmp_path, monkeypatch):
    package = tmp_path / "a_page"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "text.md").write_text(
        "# Words\n\n## one\nOver\n{pairs} pairs.\n\nNext.\n\n## two\nB.\n\n"
        "## words\nn: a: b\n\nk, m: two\nlines\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    prose = Prose("a_page")
    assert prose("one", pairs=3) == "Over 3 pairs.\n\nNext."
    assert prose("two") == "B."
    assert prose.pairs("words") == [("n", "a: b"), ("k, m", "two lines")]
    with pytest.raises(KeyError, match="pairs"):
        prose("one")
    with pytest.raises(KeyError, match="three"):
        prose("three")
