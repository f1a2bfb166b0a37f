from __future__ import annotations

import pytest

from sparing.core.errors import (
    CheckpointError,
    DataError,
    UsageError,
    listed,
    nearest,
    option,
    option_form,
    quoted,
)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("short", "'short'"),
        ("a" * 40, "'" + "a" * 40 + "'"),
        ("a" * 5000, "'" + "a" * 37 + "...'"),
        ("two\nlines", r"'two\nlines'"),
        (3.5, "3.5"),
        (None, "None"),
        (["x"] * 99, "['x', 'x', 'x', 'x', 'x', 'x', 'x', '..."),
    ],
)
def test_foreign_values_are_cut_to_one_short_line(value, shown):
    assert quoted(value) == shown


def test_a_number_of_thousands_of_digits_has_no_text():
    assert quoted(10**5000) == "a value of type int"


def test_names_are_listed_and_counted():
    assert listed("abc") == "a, b, c"
    assert listed("abcdefg") == "a, b, c, d, e and 2 more"
    assert listed(["x" * 99]) == "x" * 37 + "..."


def test_hints_stay_short():
    assert len(nearest("q", (f"{'x' * 99}{number}" for number in range(5000)))) < 400
    assert len(nearest("x" * 5000, ["x" * 4999])) < 100


def test_options_have_the_form_of_the_caller():
    assert option("skip_broken", True) == "skip_broken=True"
    assert (option("label", "NAME"), option("tokenizer", "bytes")) == (
        "label=NAME",
        "tokenizer='bytes'",
    )
    with option_form("--set task_options.{}"):
        assert option("header", False) == "--set task_options.header=false"
        with option_form("--set {}"):
            assert option("tokenizer", "bytes") == "--set tokenizer=bytes"
    assert option("header", False) == "header=False"


@pytest.mark.parametrize("error", [UsageError, DataError, CheckpointError])
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\nb", "a b"),
        ("a\x85b", "a b"),
        ("a\u2028b\x1cc", "a b c"),
        ("\x1b[2J", "\N{REPLACEMENT CHARACTER}[2J"),
        ("x" * 5000 + " do this", "x" * 295 + " ... " + "x" * 92 + " do this"),
    ],
)
def test_every_message_is_one_line_of_400_characters(error, text, shown):
    assert str(error(text)) == shown
    assert len(shown) <= 400
