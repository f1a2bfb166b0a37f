"""What a page warns of: estimated joules, and cells that have not ended."""

from __future__ import annotations

import pytest

from sparing.core.record import Record
from sparing.report.blocks import energy_notices, missing_cells, unfinished_notices
from sparing.report.run import Run


def run_of(records, **config):
    return Run({"arms": ["dense"], **config}, records, [], [])


def energy(obtained):
    labels = {"arm": "dense", "seed": 0, "component": obtained}
    return Record("train_energy_j", 5.0, "J", obtained, labels, cell="dense/0")


@pytest.mark.parametrize(
    ("kinds", "warned"),
    [([], False), (["estimated"], True), (["measured"], False), (["estimated", "measured"], False)],
)
def test_joules_are_called_estimates_where_no_counter_was_read(kinds, warned):
    notices = energy_notices(run_of(list(map(energy, kinds)), watts_per_core=5.0))
    assert len(notices) == warned
    assert all("CPU seconds times 5 W" in notice for notice in notices)


def test_cells_that_have_not_ended_are_counted_and_named():
    run = run_of([energy("measured")], cells=["dense/0", "dense/1", "linear/0"])
    assert missing_cells(run) == ["dense/1", "linear/0"]
    (notice,) = unfinished_notices(run, "; ".join)
    assert "1 of 3 cells are done; missing are dense/1; linear/0." in notice
    assert unfinished_notices(run_of([energy("measured")], cells=["dense/0"]), "; ".join) == []
