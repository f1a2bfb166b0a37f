"""Worker processes: results, errors, kills, and their end."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from sparing.core.errors import UsageError
from sparing.engines.workers import WorkerLost, Workers
from tests.engines import jobs


def test_results_and_errors_come_back() -> None:
    with Workers(2) as workers:
        futures = [workers.submit(jobs.square, number) for number in range(9)]
        assert [future.result() for future in futures] == [n * n for n in range(9)]
        with pytest.raises(ValueError, match="no such luck"):
            workers.submit(jobs.refuse, text="no such luck").result()
        assert workers.submit(jobs.square, 3).result() == 9
        pids = workers.pids()
    assert len(pids) == 2
    assert not any(map(_runs, pids))


def test_no_workers_are_refused() -> None:
    with pytest.raises(UsageError, match="processes must be at least 1; got 0"):
        Workers(0)


def test_work_of_a_killed_worker_is_repeated(tmp_path: Path) -> None:
    tally = tmp_path / "tally"
    with Workers(1) as workers:
        assert workers.submit(jobs.die_until, tally, 2).result() == 3
        assert workers.submit(jobs.square, 4).result() == 16


def test_work_that_is_always_killed_is_given_up_alone(tmp_path: Path) -> None:
    with Workers(2) as workers:
        lost = workers.submit(jobs.die_until, tmp_path / "tally", 99)
        others = [workers.submit(jobs.square, number) for number in range(5)]
        with pytest.raises(WorkerLost, match="killed 3 times"):
            lost.result()
        assert [other.result() for other in others] == [0, 1, 4, 9, 16]


def test_threads_and_import_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "colorsys.py").write_text("raise SystemExit('taken from the working directory')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    with Workers(1, threads=1) as workers:
        threads, variable, path = workers.submit(jobs.surroundings).result()
        assert (threads, variable) == (1, "1")
        assert "" not in path[:1]
        assert not workers.submit(jobs.imported_from, "colorsys").result().startswith(str(tmp_path))
    assert "OMP_NUM_THREADS" not in os.environ
    assert "PYTHONSAFEPATH" not in os.environ


def test_work_that_runs_at_the_end_may_save_itself(tmp_path: Path) -> None:
    started, saved = tmp_path / "started", tmp_path / "saved"
    with Workers(1) as workers:
        future = workers.submit(jobs.wait_until_interrupted, started, saved)
        waiting = workers.submit(jobs.square, 2)
        _until(started.exists)
    assert saved.exists()
    assert isinstance(future.exception(), KeyboardInterrupt)
    assert waiting.cancelled() or waiting.exception() is not None


def test_work_that_does_not_stop_is_killed(tmp_path: Path) -> None:
    started = tmp_path / "started"
    workers = Workers(1)
    workers.submit(jobs.wait, started, 60.0)
    _until(started.exists)
    pids, begun = workers.pids(), time.monotonic()
    workers.end(patience_s=0.3)
    assert time.monotonic() - begun < 20
    assert not any(map(_runs, pids))


PROGRAM = """
import sys, time
from pathlib import Path
from sparing.engines.workers import Workers
from tests.engines import jobs
if __name__ == "__main__":
    workers = Workers(1)
    workers.submit(jobs.wait, Path(sys.argv[1]), 60.0)
    while not Path(sys.argv[1]).exists():
        time.sleep(0.05)
    print(*workers.pids(), flush=True)
    time.sleep(60)
"""


def test_workers_end_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    path = os.pathsep.join(entry for entry in sys.path if entry)
    with subprocess.Popen(
        [sys.executable, str(program), str(tmp_path / "started")],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.kill()
    _until(lambda: not _runs(pid))


def _runs(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _until(condition: object, seconds: float = 30.0) -> None:
    assert callable(condition)
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)
