"""Cells side by side in processes of this machine."""

from __future__ import annotations

import dataclasses
import json
import os
import resource
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from sparing.core.errors import DataError, UsageError
from sparing.core.record import Record
from sparing.experiment.conduct import no_progress
from sparing.experiment.parallel.driver import Driver
from sparing.experiment.parallel.engines import Local, Where
from sparing.experiment.parallel.orders import Order, Source, carry_out
from sparing.experiment.plan import BESIDE
from sparing.experiment.run import FINISHED, Run, read_config
from sparing.experiment.study import StudyResult
from tests.experiment.parallel import tiny

TWO = Where(processes=2)


def run(folder: Path, where: Where | None = TWO, cells: str = "*", **options: Any) -> StudyResult:
    return tiny.STUDY.run(tiny.Options(**options), folder, where=where, cells=cells)


def scores(folder: Path) -> dict[str, list[float]]:
    """All scores by cell, as often as they are there."""
    by_cell: dict[str, list[float]] = {}
    for record in _log(folder):
        if record.name == "score":
            by_cell.setdefault(record.cell, []).append(float(record.value or 0))
    return by_cell


def _log(folder: Path) -> list[Record]:
    return Run(folder, read_config(folder, tiny.__name__)).log.read()


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two processes, both of which ran squares."""
    folder = tmp_path_factory.mktemp("ran")
    meeting = {f"beside/square/{number}": "meet" for number in range(3)}
    assert not run(folder, squares=3, faults=meeting).failures
    return folder


def test_the_records_are_those_of_one_process(tmp_path: Path, ran: Path) -> None:
    assert not run(tmp_path, None, squares=3).failures
    assert scores(tmp_path) == scores(ran)
    assert len(scores(ran)) == 6
    marks = [record.cell for record in _log(ran) if record.name == FINISHED]
    assert len(marks) == len(set(marks)) == 6
    assert not (ran / ".running").exists()


def test_times_count_only_for_cells_that_were_alone(ran: Path) -> None:
    timed = {record.cell for record in _log(ran) if record.name == "took"}
    dropped = {r.cell: r.labels for r in _log(ran) if r.name == BESIDE}
    assert timed == {"alone/first", "alone/last"}
    assert {cell.partition("/")[0] for cell in dropped} == {"beside"}
    assert dropped["beside/root"] == {"others": 1, "dropped": "took"}


def test_cells_wait_for_what_they_need_and_for_those_that_are_alone(ran: Path) -> None:
    spans = tiny.spans(ran)
    squares = [spans[f"beside-square-{number}"] for number in range(3)]
    assert all(spans["beside-root"][1] <= start for start, *_ in squares)
    assert spans["alone-first"][1] <= spans["beside-root"][0]
    assert spans["alone-last"][0] >= max(end for _, end, _ in squares)
    assert spans["alone-first"][2] == spans["alone-last"][2] == os.getpid()
    assert os.getpid() not in {pid for *_, pid in squares}
    assert len({pid for *_, pid in squares}) == 2  # they met


def test_failed_and_killed_cells_are_said_once_and_repeated_alone(tmp_path: Path) -> None:
    faults = {"beside/square/0": "raise", "beside/square/1": "die", "beside/square/2": "die once"}
    result = run(tmp_path, faults=faults)
    failed = {failure.cell: failure.error for failure in result.failures}
    assert failed.keys() == {"beside/square/0", "beside/square/1"}
    assert failed["beside/square/0"] == "it cannot be done"
    assert "killed 3 times" in failed["beside/square/1"]
    assert len(json.loads((tmp_path / "failed.json").read_text())) == 2
    assert len(scores(tmp_path)) == 5
    assert not run(tmp_path, None).failures
    assert {len(values) for values in scores(tmp_path).values()} == {1}
    assert len(scores(tmp_path)) == 7


def test_a_full_disk_ends_the_run_and_keeps_what_is_finished(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="No space left"):
        run(tmp_path, faults={"beside/square/0": "full"})
    assert {"alone/first", "beside/root"} <= scores(tmp_path).keys()
    assert "beside/square/0" not in scores(tmp_path)
    assert not run(tmp_path, None).failures
    assert {len(values) for values in scores(tmp_path).values()} == {1}


def test_records_that_a_full_disk_cut_short_are_kept_once(tmp_path: Path) -> None:
    order = order_of(tmp_path)
    opened = Run(tmp_path, order.config)
    driver = Driver(opened, Local(1), order.source, no_progress)
    [cell] = [c for c in tiny.cells_of(tiny.Options(), tmp_path) if c.key == order.key]
    finished: Future[Any] = Future()
    finished.set_result(carry_out(order))
    size, (soft, hard) = opened.log.path.stat().st_size, resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 500, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            driver._take(cell, finished)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert scores(tmp_path)[order.key] == [2.0]  # one line of the cell is there
    assert order.key not in opened.finished()
    driver._take_left({finished: cell})
    assert scores(tmp_path)[order.key] == [2.0]
    assert order.key in opened.finished()


def test_no_time_begins_nothing(tmp_path: Path) -> None:
    tiny.STUDY.run(tiny.Options(), tmp_path, where=TWO, minutes=0.0)
    assert scores(tmp_path) == {}


def test_a_study_without_such_cells_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="leave --processes out"):
        tiny.STUDY.run(tiny.Options(), tmp_path, where=TWO, cells="alone/*")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("locel",), "unknown engine 'locel'; did you mean 'local'"),
        (("local", -1), "processes must be at least 1; got -1"),
        (("local", 2, "auto"), "give --engine ray too"),
    ],
)
def test_what_no_engine_can_do_is_refused(given: tuple[Any, ...], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Where(*given)


def order_of(folder: Path, **changed: Any) -> Order:
    """An order for one cell of a run in a folder, with another configuration."""
    options = tiny.Options()
    tiny.STUDY.run(options, folder, cells="alone/first")
    config = read_config(folder, tiny.__name__)
    return Order(Source(tiny.__name__, options, folder), "beside/root", {**config, **changed})


def test_an_order_is_refused_by_another_version(tmp_path: Path) -> None:
    done = carry_out(order_of(tmp_path, sparing_version="9.9", commit="abc"))
    assert "sparing 9.9 (abc)" in done.ends
    assert "install the same on all nodes" in done.ends
    assert done.records == []


def test_an_order_is_refused_with_other_data_or_settings(tmp_path: Path) -> None:
    order = order_of(tmp_path)
    other = dataclasses.replace(order, config={**order.config, "identity": {"squares": 9}})
    assert "prepares another run: squares is 4 there, 9 here" in carry_out(other).ends
    (tmp_path / "numbers").write_text("b7")
    data = dataclasses.replace(order.source, data=tmp_path)
    other = Order(data, order.key, {**order.config, "data": {"numbers": "a5"}})
    assert "has other data of numbers: b7 there, a5 here" in carry_out(other).ends
    gone = dataclasses.replace(order, source=Source(tiny.__name__, tiny.Options(), tmp_path / "no"))
    assert "put it on a path that all nodes share" in carry_out(gone).ends
    assert carry_out(order).records[0].value == 2.0
