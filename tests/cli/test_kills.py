"""Commands that are killed at random moments and called again lose nothing and repeat nothing."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from sparing.core.record import RecordLog
from sparing.studies._run import ANALYSIS, FINISHED
from tests.cli.conftest import SMALL_COMPARE

RUN = "import sys; sys.argv[0] = 'sparing'; from sparing.cli import main; main()"
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
ENDED = {0, 4, 130, 143, *(-number for number in SIGNALS)}  # of signals also before main begins
SMALL_SLIM = (
    *("slim", "vit", "--task", "digits", "--quick", "--set", "dense_epochs=1", "--set", "epochs=1"),
    *("--set", "polish_epochs=0", "--set", "rounds=1", "--set", "timed_examples=20"),
    *("--set", "batches=1,", "--set", "int8=false", "--set", "memory=false"),
)
CHILDREN_S = 10.0


def _start(arguments, folder):
    command = [sys.executable, "-c", RUN, *arguments, "--output-dir", str(folder)]
    return subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def _session(number):
    """The processes of a session that are not dead."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] != "Z" and int(fields[3]) == number:
            found.append(int(status.parent.name))
    return found


def _killed(arguments, folder, kills, longest):
    """Call until done, killed ``kills`` times on the way at most; how often it was."""
    draw = random.Random(0)
    done = 0
    while True:
        process = _start(arguments, folder)
        number = draw.choice(SIGNALS)
        try:
            if done < kills:
                process.communicate(timeout=draw.uniform(0, longest))
            else:
                process.communicate(timeout=600)
        except subprocess.TimeoutExpired:
            process.send_signal(number)
            done += 1
        _, err = process.communicate(timeout=120)
        assert "internal error" not in err
        assert process.returncode in ENDED, err
        _require_no_children(process.pid)
        if process.returncode in (0, 4):
            assert process.returncode == 0, err
            return done


def _require_no_children(session):
    until = time.monotonic() + CHILDREN_S
    while _session(session) and time.monotonic() < until:
        time.sleep(0.1)
    left = _session(session)
    for process in left:
        os.kill(process, signal.SIGKILL)
    assert left == []


def _cells(folder):
    entries = RecordLog(folder / "records.jsonl").read()
    return Counter(entry.cell for entry in entries if entry.name == FINISHED), entries


def _results(entries, names):
    """What does not depend on the machine's speed."""
    return sorted(
        (entry.name, json.dumps(entry.labels, sort_keys=True), entry.value)
        for entry in entries
        if entry.name in names and entry.cell != ANALYSIS
    )


def _compared(arguments, tmp_path, kills, names):
    """A run that was killed so often against one that was not, by its cells and its results."""
    begun = time.monotonic()
    assert _killed(arguments, tmp_path / "whole", 0, 0) == 0
    took = time.monotonic() - begun
    done, number = 0, 0
    while done < kills:
        folder = tmp_path / f"killed-{number}"
        done, number = done + _killed(arguments, folder, kills - done, took), number + 1
        cells, entries = _cells(folder)
        whole, expected = _cells(tmp_path / "whole")
        assert set(cells.values()) == {1}
        assert cells == whole
        assert _results(entries, names) == _results(expected, names)
        assert _results(entries, names) != []


@pytest.mark.slow
def test_thirty_kills_of_a_comparison(tmp_path):
    kills = int(os.environ.get("SPARING_TEST_KILLS", "30"))
    _compared(SMALL_COMPARE, tmp_path, kills, ("accuracy", "validation_score", "score"))


@pytest.mark.slow
def test_ten_kills_of_a_slimming(tmp_path):
    kills = int(os.environ.get("SPARING_TEST_KILLS", "10"))
    _compared(SMALL_SLIM, tmp_path, kills, ("frontier_score", "adaptive_score", "score"))
