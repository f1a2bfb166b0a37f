"""Killed workers and killed drivers: nothing is lost, nothing is twice in the output."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time

import pytest

import sparing
from sparing.engines.workers import Workers
from sparing.predict import study
from tests.predict import jobs
from tests.predict.files import contents, output, texts, write_parquet

PROGRAM = "import sys; sys.argv[0] = 'sparing'; from sparing.cli import main; main()"
KILLS, ROWS, SIZE = 20, 6000, 50


def test_the_shard_of_a_killed_worker_is_answered_again(models, tmp_path, monkeypatch):
    file = write_parquet(tmp_path / "texts.parquet", text=texts(80))
    settings = {"rows_a_shard": 16, "processes": 1}
    sparing.predict(models["class"], file, output_dir=tmp_path / "one", **settings)
    monkeypatch.setenv(jobs.TALLY, str(tmp_path / "tally"))
    monkeypatch.setattr(study, "answer", jobs.killed_once)
    monkeypatch.setattr(study, "open_pool", lambda options, most: Workers(1))
    result = sparing.predict(models["class"], file, output_dir=tmp_path / "two", **settings)
    assert (tmp_path / "tally").exists()
    assert (result.rows, result.answered) == (80, 80)
    assert contents(tmp_path / "two") == contents(tmp_path / "one")


def command(model, file, folder, processes):
    given = ("predict", model, "--texts", file, "--output-dir", folder, "--json")
    return [*map(str, given), "--rows-a-shard", str(SIZE), "--processes", str(processes)]


def import_path():
    return os.pathsep.join(entry for entry in sys.path if entry)


def start(*given):
    return subprocess.Popen(
        [sys.executable, "-P", "-c", PROGRAM, *command(*given)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": import_path()},
        start_new_session=True,
    )


def wait_for(is_alive, folder, files, seconds=300.0):
    """Until there are so many files, or the process has ended."""
    end = time.monotonic() + seconds
    while is_alive() and len([*folder.glob("part-*")]) < files:
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["Ctrl-C", "SIGTERM"]
)
@pytest.mark.slow
def test_an_ended_run_says_that_it_resumes(models, tmp_path, number, code):
    file = write_parquet(tmp_path / "texts.parquet", text=texts(ROWS))
    with start(models["class"], file, tmp_path / "out", 2) as process:
        wait_for(lambda: process.poll() is None, tmp_path / "out", 2)
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
    assert process.returncode == code, said
    assert "finished work is saved: the same command resumes it" in said
    listed = output(tmp_path / "out")
    assert 0 < len(listed) < ROWS
    assert len(listed) % SIZE == 0


@pytest.fixture
def forks(monkeypatch):
    """Processes that are forked by one that has imported the libraries."""
    monkeypatch.setenv("PYTHONPATH", import_path())
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*jobs.LOADED])
    return context


@pytest.mark.slow
def test_killed_at_random_moments_it_loses_and_repeats_nothing(models, tmp_path, forks):
    file = write_parquet(tmp_path / "texts.parquet", text=texts(ROWS), id=range(ROWS))
    settings = {"rows_a_shard": SIZE, "processes": 1}
    sparing.predict(models["class"], file, output_dir=tmp_path / "one", **settings)
    chance, folder, killed = random.Random(7), tmp_path / "out", 0

    def begun(processes):
        given = command(models["class"], file, folder, processes)
        process = forks.Process(target=jobs.command, args=(given,))
        process.start()
        return process

    for kill in range(KILLS):
        before = contents(folder)
        process = begun(2 if kill % 5 == 4 else 1)
        # some are killed while they start, most of them at work
        wait_for(process.is_alive, folder, len(before) + kill % 4)
        time.sleep(chance.uniform(0, 0.1))
        process.kill()
        process.join()
        killed += process.exitcode == -signal.SIGKILL
        assert contents(folder).items() >= before.items()
    assert killed == KILLS
    assert 0 < len(contents(folder)) < ROWS // SIZE
    process = begun(2)
    process.join()
    assert process.exitcode == 0
    assert contents(folder) == contents(tmp_path / "one")
    assert [row["row"] for row in output(folder)] == list(range(ROWS))
    assert not [path for path in folder.iterdir() if path.name.endswith(".part")]
