"""Commands that are killed at random moments and called again lose nothing and repeat nothing."""

from __future__ import annotations

import json
import os
import random
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from sparing.core.record import RecordLog
from sparing.experiment.run import ANALYSIS, FINISHED
from tests.cli.conftest import SMALL, SMALL_COMPARE

# Each line of its input is a command, which gets a session for itself: in a fresh interpreter, or
# in a fork of this one, which has imported the libraries. Importing takes longer than most cells.
FORKS = """
import importlib, json, os, signal, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
from sparing.cli import main
reports = os.dup(1)
for line in sys.stdin:
    process = os.fork()
    if process:
        os.write(reports, f"{process}\\n".encode())
        code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        os.write(reports, f"{code}\\n".encode())
        continue
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.close(reports)
    fresh, arguments, log = json.loads(line)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    if fresh:
        os.execv(sys.executable, [sys.executable, "-c", fresh, *arguments])
    sys.argv[:] = ["sparing", *arguments]
    main()
    break
"""
FRESH = "import sys; sys.argv[0] = 'sparing'; from sparing.cli import main; main()"
LOADED = ("sparing.compare.study", "sparing.slim.study", "sparing.report.rendering")
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
ENDED = {0, 130, 143, *(-number for number in SIGNALS)}  # of signals also before main begins
SMALL_SLIM = (
    *("slim", "vit", "--task", "digits", "--quick", "--speed", "0.001", *SMALL),
    *("--set", "dense_epochs=1", "--set", "rounds=1", "--set", "timed_examples=20"),
    *("--set", "batches=1,", "--set", "memory=false"),
    *("--set", "widths=0.5,", "--set", "width_chances=1.0,"),
)
CHILDREN_S, LONGEST_S = 2.0, 600.0


@dataclass(frozen=True)
class Moment:
    """When to send a signal: ``seconds`` after so many finished cells, or after a fresh start."""

    cells: int | None
    seconds: float
    number: int


class Process:
    """A command at work on a run."""

    def __init__(self, forks, arguments, folder, *, fresh):
        self.begun, self.folder, self.reports = time.time(), folder, forks.stdout
        self.log = folder.with_name(f"{folder.name}.log")
        given = [*arguments, "--output-dir", str(folder)]
        forks.stdin.write(
            json.dumps([FRESH if fresh else "", given, str(self.log)]).encode() + b"\n"
        )
        self.pid = int(self.reports.readline())

    def ended(self, seconds=0.0):
        """Whether it ends within so many seconds."""
        return bool(select.select([self.reports], [], [], seconds)[0])

    def code(self):
        """Its exit code; nothing of its session may be alive then."""
        assert self.ended(LONGEST_S), "it did not end"
        code = int(self.reports.readline())
        assert _session(self.pid) == set()
        return code

    def cells(self):
        """How many cells are finished; none before this process has opened the run."""
        with suppress(OSError):
            if (self.folder / "config.json").stat().st_mtime >= self.begun:
                records = self.folder / "records.jsonl"
                marks = records.read_bytes() if records.exists() else b""
                return marks.count(f'"name": "{FINISHED}"'.encode())
        return None

    def kill(self, number):
        """Send a signal; the children that it has then end within two seconds."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)
        sent = time.monotonic()
        while (left := _session(self.pid) - {self.pid}) and time.monotonic() < sent + CHILDREN_S:
            time.sleep(0.02)
        for child in left:
            os.kill(child, signal.SIGKILL)
        assert left == set(), f"children live {CHILDREN_S} s after signal {number}"


@contextmanager
def _forks():
    command = [sys.executable, "-c", FORKS, *LOADED]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    ) as process:
        yield process


def _session(number):
    """The processes of a session that are not dead."""
    alive = set()
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = status.read_text().rpartition(")")[2].split()
            if fields[0] != "Z" and int(fields[3]) == number:
                alive.add(int(status.parent.name))
    return alive


def _watched(process):
    """When a run was opened, when each cell was finished, and when the command ended."""
    times = []
    while not process.ended(0.02):
        times += [time.time()] * (
            (-1 if process.cells() is None else process.cells()) + 1 - len(times)
        )
    assert process.code() == 0, process.log.read_text()
    return [*times, time.time()]


def _drawn(begun, times, kills):
    """Random moments over the whole length of a run: those of its cells in order."""
    draw = random.Random(0)
    starts, moments = [], []
    for _ in range(kills):
        at, number = draw.uniform(begun, times[-1]), draw.choice(SIGNALS)
        if at < times[0]:
            starts.append(Moment(None, at - begun, number))
        else:
            cells = sum(end <= at for end in times[:-1]) - 1
            moments.append(Moment(cells, at - times[cells], number))
    moments.sort(key=lambda moment: (moment.cells, moment.seconds))
    for moment in starts:
        moments.insert(draw.randint(0, len(moments)), moment)
    return moments


def _wait(process, moment):
    """Wait for a moment; whether the command is still at work then."""
    since = process.begun if moment.cells is None else None
    while since is None:
        if process.ended(0.01):
            return False
        if (process.cells() or 0) >= moment.cells and process.cells() is not None:
            since = time.time()
    return not process.ended(max(0.0, since + moment.seconds - time.time()))


def _killed(forks, arguments, folder, moment):
    """Call once and kill at the moment; earlier where the command has ended before."""
    while True:
        process = Process(forks, arguments, folder, fresh=moment.cells is None)
        reached = _wait(process, moment)
        at = process.cells()
        if reached:
            process.kill(moment.number)
        code, said = process.code(), process.log.read_text()
        print(moment, reached, at, code, round(time.time() - process.begun, 1), flush=True)
        assert code in (ENDED if reached else {0}), said
        assert "internal error" not in said
        assert at is None or "Traceback" not in said, said
        if reached:
            return
        moment = replace(moment, seconds=moment.seconds / 2)


def _state(folder, names):
    """What does not depend on the machine's speed: cells, results, weights and files."""
    entries = RecordLog(folder / "records.jsonl").read()
    cells = Counter(entry.cell for entry in entries if entry.name == FINISHED)
    assert set(cells.values()) == {1}
    results = sorted(
        (entry.name, json.dumps(entry.labels, sort_keys=True), entry.value)
        for entry in entries
        if entry.name in names and entry.cell != ANALYSIS
    )
    assert {name for name, _, _ in results} == set(names)
    files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))
    weights = {
        name: (folder / name).read_bytes() for name in files if name.endswith("model.safetensors")
    }
    return cells, results, files, weights


def _compared(arguments, tmp_path, kills, names):
    """A run that was killed so often against one that was not."""
    whole, often = tmp_path / "whole", tmp_path / "often"
    with _forks() as forks:
        process = Process(forks, arguments, whole, fresh=True)
        times = _watched(process)
        print([round(t - process.begun, 1) for t in times])
        for moment in _drawn(process.begun, times, kills):
            _killed(forks, arguments, often, moment)
        process = Process(forks, arguments, often, fresh=False)
        assert process.code() == 0, process.log.read_text()
    for state, expected in zip(_state(often, names), _state(whole, names), strict=True):
        assert state == expected


@pytest.mark.slow
def test_thirty_kills_of_a_comparison(tmp_path):
    kills = int(os.environ.get("SPARING_TEST_KILLS", "30"))
    _compared(SMALL_COMPARE, tmp_path, kills, ("accuracy",))


@pytest.mark.slow
def test_ten_kills_of_a_slimming(tmp_path):
    kills = int(os.environ.get("SPARING_TEST_KILLS", "10"))
    names = (
        "dense_score",
        "frontier_score",
        "chosen_plan",
        "fixed_width_score",
    )
    _compared(SMALL_SLIM, tmp_path, kills, names)
