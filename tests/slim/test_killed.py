"""SIGKILL ends a run of ``slim`` in every step, twice, and it goes on to its end each time."""

from __future__ import annotations

import dataclasses
import json
import signal
import subprocess
import sys

import pytest

from tests.slim.conftest import of_name, run_of

pytestmark = pytest.mark.slow

# It kills itself in the step of that name: when its results are written but it is not marked as
# finished, or after a share of the seconds that the step took in the whole run.
CHILD = """
import json, os, signal, sys, threading
from pathlib import Path
from sparing.experiment import run
from sparing.slim.options import Options
from tests.slim.conftest import run_of

step, seconds, folder, options = sys.argv[1], float(sys.argv[2]), sys.argv[3], sys.argv[4]
kill = lambda: os.kill(os.getpid(), signal.SIGKILL)
keep, do_one = run.Run.keep, run.Run._do_one

def kept(self, key, records):
    if key == step:
        kill()
    return keep(self, key, records)

def done(self, cell):
    if cell.key == step and seconds:
        timer = threading.Timer(seconds, kill)
        timer.daemon = True
        timer.start()
    return do_one(self, cell)

run.Run.keep, run.Run._do_one = kept, done
given = json.loads(options)
given = {name: tuple(v) if isinstance(v, list) else v for name, v in given.items()}
run_of(Options(**given), Path(folder), "onnxruntime")
"""


def _killed(options, folder, step, seconds=0.0):
    """Go on with the run until the child kills itself in this step."""
    given = json.dumps(dataclasses.asdict(options))
    command = [sys.executable, "-c", CHILD, step, str(seconds), str(folder), given]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert ended.returncode == -signal.SIGKILL, (step, ended.stderr[-2000:])


def _numbers(result, name):
    """The values of the records of a name, with the labels that no time decides."""
    return [
        (r.value, r.labels.get("plan"), r.labels.get("threshold")) for r in of_name(result, name)
    ]


def test_kill_9_in_every_step_loses_nothing(texts_run, texts_options, tmp_path):
    folder = tmp_path / "run"
    took = {r.cell: r.value for r in texts_run.records if r.name == "cell_time_s"}
    for step in texts_run.config["cells"]:
        _killed(texts_options, folder, step, 0.5 * took[step])
        _killed(texts_options, folder, step)
    result = run_of(texts_options, folder, "onnxruntime")
    assert result.failures == []
    assert (folder / "model" / "torch" / "config.json").is_file()
    for name in ("dense_answers", "frontier_score", "fixed_width_score", "form_segments"):
        assert _numbers(result, name) == _numbers(texts_run, name), name
