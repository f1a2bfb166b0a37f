"""Every text of a product's ``text.md`` is used, and every one that is used is there."""

from __future__ import annotations

import ast

import pytest

from sparing.report.prose import Prose
from tests.report.texts import dotted, faults, faults_of, files, used


@pytest.mark.parametrize("path", files("src"), ids=lambda path: dotted(path.parent))
def test_every_text_is_used_and_there(path):
    assert faults_of(path) == ([], [])


def test_compare_and_slim_have_texts():
    packages = {dotted(path.parent) for path in files("src")}
    assert {"sparing.compare.page", "sparing.slim.page"} <= packages


def test_a_word_and_its_meaning_are_filled_in():
    words = dict(Prose("sparing.compare.page").pairs("words", dense="the baseline"))
    assert "the baseline's time" in words["faster, slower"]


PACKAGE = """
TEXT = Prose(__name__)
first = TEXT.pairs("one") + TEXT("two" if first else "three", count=1)
"""
PAGE = """
from package import TEXT as text
def words(side):
    return text(f"side-{side}")
"""
BY_NAME = """
import package
from package import TEXT
for key in ("loop",):
    TEXT(key)
"""


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (("one", "two", "three", "side-left"), ([], [])),
        (("one", "two", "three", "side-left", "left", "four"), (["left", "four"], [])),
        (("one", "two", "side-left"), ([], ["three"])),
        (("one", "two", "three"), ([], ["side\\-\\S+"])),
    ],
)
def test_an_unused_and_a_missing_text_are_named(keys, expected):
    trees = {"package": ast.parse(PACKAGE), "page": ast.parse(PAGE)}
    assert faults(keys, *used(trees, "package")) == expected


def test_a_key_by_name_may_be_any_text_of_its_module():
    trees = {"package": ast.parse(PACKAGE), "page": ast.parse(PAGE), "more": ast.parse(BY_NAME)}
    keys = ("one", "two", "three", "side-left", "loop", "left")
    assert faults(keys, *used(trees, "package")) == (["left"], [])
