"""Child processes import what their parent would, and end when it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sparing.engines.children import output_of, run_module

SUBJECT = "tests.engines.children_subject"
ROOT = Path(__file__).parents[2]
PARENT = f"""
import sys
sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / "src")!r}]
from sparing.engines.children import run_module
run_module({SUBJECT!r}, '{{"write": "' + sys.argv[1] + '"}}')
"""


def test_the_working_directory_does_not_take_the_place_of_a_library(tmp_path, monkeypatch):
    (tmp_path / "token.py").write_text("raise SystemExit('it ran')")
    (tmp_path / "psutil.py").write_text("raise SystemExit('it ran')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(ROOT)
    done = run_module(SUBJECT, "{}")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert not answer["token"].startswith(str(tmp_path))
    assert str(tmp_path) not in answer["path"]


def test_where_the_parent_imports_from_its_folder_the_child_does_so_last(tmp_path, monkeypatch):
    (tmp_path / "token.py").write_text("raise SystemExit('it ran')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(ROOT)
    monkeypatch.syspath_prepend("")
    answer = json.loads(run_module(SUBJECT, "{}").stdout)
    assert not answer["token"].startswith(str(tmp_path))
    assert answer["path"].index(str(tmp_path)) > answer["path"].index(str(ROOT))


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the child looks now and then")
@pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGTERM])
def test_no_child_outlives_its_parent(tmp_path, signal_number):
    note = tmp_path / "pid"
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(note)], cwd=tmp_path)
    child = int(_waited_for(note))
    parent.send_signal(signal_number)
    parent.wait(10)
    deadline = time.monotonic() + 2
    while _lives(child) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not _lives(child)


def test_a_child_that_takes_too_long_is_ended(tmp_path):
    note = tmp_path / "pid"
    with pytest.raises(subprocess.TimeoutExpired):
        run_module(SUBJECT, json.dumps({"write": str(note)}), timeout_s=1.0)
    assert not note.exists() or not _lives(int(note.read_text()))


def test_commands_that_fail_print_nothing():
    assert output_of(["no-such-command"]) == ""
    assert output_of(["false"]) == ""
    assert output_of(["echo", "a"]) == "a"


def _waited_for(note):
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if note.exists() and note.read_text():
            return note.read_text()
        time.sleep(0.05)
    raise AssertionError("the child did not begin")


def _lives(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
