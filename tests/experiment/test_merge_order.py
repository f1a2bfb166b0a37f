"""Where several folders finished one cell, the first folder's records are the merged run's."""

from __future__ import annotations

import shutil

import pytest

from sparing.core.record import Record
from sparing.experiment.merge import merge
from sparing.experiment.registry import find_study
from sparing.experiment.run import Run, read_config
from tests.experiment.test_merge import WHOLE


@pytest.fixture
def folders(tmp_path):
    """Two folders of one run: both finished cells a and b, each with values of its own."""
    first, second = tmp_path / "first", tmp_path / "second"
    find_study("kerformer").run(WHOLE, first, minutes=0.0)
    shutil.copytree(first, second)
    for folder, value in ((first, 1.0), (second, 2.0)):
        run = Run(folder, read_config(folder))
        cells = ("a", "b", "c") if folder == second else ("a", "b")
        for cell in cells:
            run.keep(cell, [Record("score", value, "share", "measured", {"of": cell})])
    return first, second


def _values(folder):
    records = Run(folder, read_config(folder)).records()
    return {r.labels["of"]: r.value for r in records if r.name == "score"}


@pytest.mark.parametrize(("turned", "expected"), [(False, 1.0), (True, 2.0)])
def test_the_first_folders_records_stand(folders, tmp_path, turned, expected):
    ordered = folders[::-1] if turned else folders
    merged = merge(ordered, tmp_path / "whole")
    values = _values(merged.folder)
    assert values == {"a": expected, "b": expected, "c": 2.0}
    assert merged.doubled == 2
    assert list(merged.cells.values()) == ([3, 0] if turned else [2, 1])
