"""Folders to write into first: what others have there stays, what a killed process left goes."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys

import pytest

from sparing.core.scratch import MARK, MARKED, scratch_beside, scratch_inside

HOLDING = """
import sys, time
from pathlib import Path
from sparing.core.scratch import scratch_beside
with scratch_beside(Path(sys.argv[1])) as part:
    (part / "half").write_text("half")
    print(flush=True)
    time.sleep(60)
"""


def test_what_is_written_moves_and_nothing_else_is_left(tmp_path):
    target = tmp_path / "out"
    before = os.umask(0o027)
    try:
        with scratch_beside(target) as part:
            (part / "one").write_text("one")
            part.replace(target)
    finally:
        os.umask(before)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert [path.name for path in target.iterdir()] == ["one"]
    assert stat.S_IMODE(target.stat().st_mode) == 0o750
    with pytest.raises(ValueError, match="no"), scratch_inside(tmp_path, "x" * 255) as part:  # noqa: PT012
        (part / "two").write_text("two")
        raise ValueError("no")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_folders_of_others_stay_whatever_their_names(tmp_path):
    for name in (".out.part", ".out.abc.part", ".other.abc.part"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine.txt").write_text("mine")
    (tmp_path / ".out.marked.part").mkdir()
    (tmp_path / ".out.marked.part" / MARK).write_text("of another program")
    (tmp_path / ".out.file.part").write_text("mine")
    (tmp_path / ".out.link.part").symlink_to(tmp_path / ".other.abc.part")
    (tmp_path / ".other.abc.part" / MARK).write_bytes(MARKED)
    (tmp_path / ".out.pipe.part").mkdir()
    os.mkfifo(tmp_path / ".out.pipe.part" / MARK)
    before = sorted(path.name for path in tmp_path.iterdir())
    with scratch_beside(tmp_path / "out"):
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert (tmp_path / ".other.abc.part" / "mine.txt").is_file()


def test_the_next_run_removes_what_a_killed_one_left_and_not_what_one_still_writes(tmp_path):
    target = tmp_path / "out"
    command = [sys.executable, "-c", HOLDING, str(target)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as alive:
        assert alive.stdout is not None
        alive.stdout.readline()
        with scratch_beside(target):
            assert len(list(tmp_path.iterdir())) == 2
        assert len(list(tmp_path.glob(".out.*.part/content/half"))) == 1
        alive.send_signal(signal.SIGKILL)
    assert len(list(tmp_path.iterdir())) == 1
    with scratch_beside(target):
        assert len(list(tmp_path.iterdir())) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_vanishes_meanwhile_is_no_error(tmp_path):
    with scratch_beside(tmp_path / "out") as part:
        shutil.rmtree(part.parent)
