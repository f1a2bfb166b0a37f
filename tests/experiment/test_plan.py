"""What the rest of a study will take, from what is done of it."""

from __future__ import annotations

import pytest

from sparing.core.progress import waiting
from sparing.core.record import Record
from sparing.experiment.plan import TIME, do_pieces, plan_by_kind
from sparing.experiment.run import Cell, open_run


def _cell(key, weight):
    return Cell(key, list, weight=weight)


def _took(key, seconds):
    return Record(TIME, seconds, "s", "measured", {"core_s": seconds}, cell=key)


def test_small_cells_that_are_done_tell_how_far_guesses_are_off_not_what_large_ones_take():
    cells = [_cell("a/b/small", 1.0), _cell("a/b/large", 60.0), _cell("c/d/other", 30.0)]
    plan = plan_by_kind(cells, [_took("a/b/small", 2.0)], {"a/b/small"}, parts=2)
    assert [cell.minutes for cell in plan.cells] == pytest.approx([2 / 60, 2.0, 1.0])
    assert [cell.done for cell in plan.cells] == [True, False, False]
    assert plan.minutes_left == pytest.approx(3.0)


def test_a_kind_goes_by_its_own_cells_and_not_by_all():
    cells = [_cell(f"{kind}/x/{n}", 10.0) for kind in "ab" for n in range(2)]
    done = [_took("a/x/0", 20.0), _took("b/x/0", 5.0)]
    plan = plan_by_kind(cells, done, {"a/x/0", "b/x/0"}, parts=2)
    left = {cell.key: 60 * cell.minutes for cell in plan.cells if not cell.done}
    assert left == pytest.approx({"a/x/1": 20.0, "b/x/1": 5.0})


def test_with_so_many_minutes_a_cell_tells_how_far_it_is_as_without(tmp_path):
    def work():
        waiting()(0.5, "epoch 1 of 2")
        return []

    cells, heard = [Cell("one", work), Cell("two", work)], {}
    for minutes in (None, 60.0):
        events = heard[minutes] = []
        config = {"identity": {}, "machine_id": "m", "commit": "c"}
        with open_run(tmp_path / str(minutes), config) as run:
            do_pieces(run, cells, minutes, lambda *event, events=events: events.append(event))
    assert heard[60.0] == heard[None][:-1]  # not that all is done: the time may have been up
    texts = ["one", "one: epoch 1 of 2", "two", "two: epoch 1 of 2"]
    assert heard[60.0] == list(zip((0.0, 0.25, 0.5, 0.75), texts, strict=True))
