"""What committed runs say is what today's program makes of their records."""

from __future__ import annotations

import json
import math

import pytest
from papers.tests import golden

from sparing.core.compressed import read_stored, stored_path
from sparing.core.record import RECORDS
from sparing.report.sections import FEW_SECTIONS

LARGE = 600_000  # bytes of records; larger runs are left to the slow tests
# Rows of single heads are not committed; what was made of them is.
NOT_COMMITTED = {"linformer-study-aae154d0-2026-11": "mean_output_error"}


def runs():
    for folder in golden.folders():
        size = len(read_stored(stored_path(folder / RECORDS)))
        marks = [pytest.mark.slow] if size > LARGE else []
        yield pytest.param(folder, marks=marks, id=folder.name)


def near(ours, theirs):
    if isinstance(ours, float) and isinstance(theirs, float | int):
        return math.isclose(ours, theirs, rel_tol=1e-9, abs_tol=1e-12)
    if isinstance(ours, list | tuple) and isinstance(theirs, list | tuple):
        return len(ours) == len(theirs) and all(map(near, ours, theirs))
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return ours.keys() == theirs.keys() and all(near(ours[key], theirs[key]) for key in ours)
    return ours == theirs


def by_name(records):
    """The records by name and labels; numbers among the labels are compared, not looked up."""
    grouped = {}
    for record in records:
        exact = {k: v for k, v in record.labels.items() if not isinstance(v, float)}
        rest = [v for v in record.labels.values() if isinstance(v, float)]
        key = (record.name, json.dumps(exact, sort_keys=True))
        parts = (record.value, record.interval, record.count, record.unit, record.obtained)
        grouped.setdefault(key, []).append([*parts, *rest])
    return grouped


@pytest.mark.parametrize("folder", list(runs()))
def test_a_committed_run_says_what_the_program_says_today(folder):
    again = golden.again(folder)
    names = {record.name for record in again.analysis} - {NOT_COMMITTED.get(folder.name)}
    _, before = golden.stored(folder)
    ours = by_name(record for record in again.analysis if record.name in names)
    theirs = by_name(record for record in before if record.name in names)
    assert ours.keys() == theirs.keys()
    assert [key for key in ours if not near(ours[key], theirs[key])] == []
    goals = json.loads((folder / "goals.json").read_text(encoding="utf-8"))["goals"]
    assert [goal["name"] for goal in again.goals] == [goal["name"] for goal in goals]
    changed = [(a, b) for a, b in zip(again.goals, goals, strict=True) if not near(a, b)]
    assert changed == []
    assert again.page.markdown == (folder / "report.md").read_text(encoding="utf-8")
    anchors = [anchor for anchor, _ in again.page.contents]
    assert len(anchors) == len(set(anchors))
    short = again.page.markdown.count("\n## ") <= FEW_SECTIONS  # such a page has no contents
    assert (anchors == []) if short else (len(anchors) > FEW_SECTIONS)


def test_each_run_of_a_study_is_decided_again():
    left = [path.parent.name for results in golden.RESULTS for path in results.glob("*/goals.json")]
    assert sorted(left) == sorted(folder.name for folder in golden.folders())
