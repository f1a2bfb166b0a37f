"""``sparing status``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sparing.experiment.parallel.running import DRIVER, noted
from tests.experiment.parallel import tiny
from tests.experiment.parallel.test_side_by_side import run


def test_a_finished_run(command: Any, tmp_path: Path) -> None:
    run(tmp_path, None, faults={"beside/square/1": "raise"})
    ended = command("status", tmp_path)
    assert ended.code == 0, ended.err
    assert "6 of 7 cells done, 1 failed; no process is doing it now" in ended.out
    assert "failed: beside/square/1" in ended.out
    assert command("status", tmp_path, "--json").json["done"] == 6


def test_a_run_in_progress(command: Any, tmp_path: Path) -> None:
    tiny.STUDY.run(tiny.Options(), tmp_path, cells="alone/first")
    with noted(tmp_path, DRIVER, 0.0) as drive, noted(tmp_path, "beside/root", 0.0) as tell:
        drive(0.2, "beside/root")
        tell(0.5, "half of it")
        ended = command("status", tmp_path)
    assert "1 of 7 cells done, 1 running, 5 waiting; process" in ended.out
    assert "beside/root" in ended.out
    assert "half of it" in ended.out


def test_a_folder_without_a_run(command: Any, tmp_path: Path) -> None:
    ended = command("status", tmp_path)
    assert ended.code == 1
    assert "holds no run" in ended.error
