"""How far a run is, while it runs and after."""

from __future__ import annotations

import os
import time
from pathlib import Path

from sparing.experiment.parallel.running import DRIVER, drop_notes, noted, read_notes
from sparing.experiment.parallel.status import status_of
from tests.experiment.parallel import tiny
from tests.experiment.parallel.test_side_by_side import run


def test_a_finished_run_has_nothing_left(tmp_path: Path) -> None:
    run(tmp_path, None, faults={"beside/square/1": "raise"})
    status = status_of(tmp_path)
    assert (status.planned, status.done, status.waiting) == (7, 6, 0)
    assert status.failed == ("beside/square/1",)
    assert status.driver is None
    assert status.running == ()
    assert status.seconds_left is None


def test_notes_say_what_runs(tmp_path: Path) -> None:
    tiny.STUDY.run(tiny.Options(), tmp_path, cells="alone/first")
    with noted(tmp_path, DRIVER, 0.0) as drive, noted(tmp_path, "beside/root", 0.0) as tell:
        drive(0.2, "beside/root")
        time.sleep(1.1)
        drive(0.6, "beside/root: half of it")
        tell(0.5, "half of it")
        status = status_of(tmp_path)
        assert (status.planned, status.done, status.waiting) == (7, 1, 5)
        assert status.driver is not None
        assert status.driver.pid == os.getpid()
        assert status.seconds_left is not None
        assert status.seconds_left > 0
        assert [(n.key, n.fraction, n.text) for n in status.running] == [
            ("beside/root", 0.5, "half of it")
        ]
        assert status.to_dict()["running"][0]["key"] == "beside/root"
    assert read_notes(tmp_path) == []


def test_notes_of_killed_processes_do_not_count(tmp_path: Path) -> None:
    tiny.STUDY.run(tiny.Options(), tmp_path, cells="alone/first")
    with noted(tmp_path, DRIVER):
        (path,) = (tmp_path / ".running").glob("*.json")
        left = path.read_text().replace(str(os.getpid()), "999999999")
    (tmp_path / ".running").mkdir()
    path.write_text(left)
    (tmp_path / ".running" / "broken.json").write_text("{")
    (tmp_path / ".running" / "other.json").write_text('{"a": 1}')
    assert len(read_notes(tmp_path)) == 1
    assert status_of(tmp_path).driver is None
    drop_notes(tmp_path)
    assert not (tmp_path / ".running").exists()


def test_a_note_that_cannot_be_written_does_no_harm(tmp_path: Path) -> None:
    (tmp_path / ".running").write_text("a file")
    with noted(tmp_path, DRIVER, 0.0) as tell:
        tell(0.5, "x")
    assert read_notes(tmp_path) == []
