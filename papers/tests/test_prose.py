"""Every text of a paper's ``text.md`` is used, and every one that is used is there."""

from __future__ import annotations

import pytest

from tests.report.texts import dotted, faults_of, files

FILES = files("papers")


@pytest.mark.parametrize("path", FILES, ids=lambda path: dotted(path.parent))
def test_every_text_is_used_and_there(path):
    assert faults_of(path) == ([], [])


def test_there_are_texts():
    assert FILES
