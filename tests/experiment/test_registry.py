"""Studies of installed distributions: found by name, refused in one line, ours never replaced."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest

from sparing.core.errors import UsageError
from sparing.experiment import installed as module
from sparing.experiment.registry import Study, find_study, shown_as, study_of


@pytest.fixture
def declared(monkeypatch):
    """Entry points of a foreign distribution beside the installed ones."""

    def declare(**values):
        foreign = [EntryPoint(name, value, module.GROUP) for name, value in values.items()]
        theirs = [*module.entry_points(group=module.GROUP), *foreign]
        monkeypatch.setattr(module, "entry_points", lambda group: theirs)
        module.installed.cache_clear()

    yield declare
    monkeypatch.undo()
    module.installed.cache_clear()


def test_a_foreign_study_is_found_and_takes_no_place_of_ours(declared):
    declared(theirs="tests.cli.missed_goal:STUDY", compare="tests.cli.missed_goal:STUDY")
    assert find_study("theirs").name == "tests.cli.missed_goal"
    assert find_study("compare").name == "compare"
    assert "theirs" in module.study_names()


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("no_such_package:STUDY", "cannot be loaded: No module named 'no_such_package'"),
        ("tests.cli.missed_goal:NOTHING", "cannot be loaded: .* no attribute 'NOTHING'"),
        ("tests.cli.missed_goal:BUDGETS", "is not a Study"),
    ],
)
def test_a_broken_declaration_is_one_line(declared, value, words):
    declared(broken=value)
    with pytest.raises(UsageError, match=words) as error:
        find_study("broken")
    assert "\n" not in str(error.value)
    assert isinstance(find_study("slim"), Study)


def test_a_file_never_decides_what_is_imported():
    with pytest.raises(UsageError, match="import it first if you trust it"):
        study_of("a_lab.of_somebody")
    assert shown_as("a_lab.of_somebody").name == shown_as(None).name == "compare"
    with pytest.raises(UsageError, match=r"unknown study 'x{40}'"):
        study_of("x" * 500)
    for odd in ({}, [], 3, ".", "..", "os.path"):
        with pytest.raises(UsageError):
            study_of(odd)
