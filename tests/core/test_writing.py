"""Files are written whole, through no link, with the modes of the umask."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys

import pytest

from sparing.core.errors import UsageError
from sparing.core.locking import held_alone
from sparing.core.record import Record, RecordLog
from sparing.core.writing import append, modes_by_umask, replacing, write_atomically

WRITING = """
import os, sys, time
from pathlib import Path
from sparing.core.writing import replacing
with replacing(Path(sys.argv[1])) as fresh:
    renamed = fresh.with_name("of-a-library")
    renamed.write_text("half")
    renamed.replace(fresh)
    print(flush=True)
    time.sleep(60)
"""


@pytest.fixture(params=[0o022, 0o077, 0o002])
def umask(request):
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def _mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_modes_follow_the_umask_also_where_a_library_writes(tmp_path, umask):
    write_atomically(tmp_path / "a", "text")
    with replacing(tmp_path / "b") as beside:
        beside.unlink()
        os.close(os.open(beside, os.O_CREAT | os.O_WRONLY, 0o600))
    append(tmp_path / "c", b"line\n")
    assert {_mode(tmp_path / name) for name in "abc"} == {0o666 & ~umask}


def test_a_folder_of_a_library_gets_the_modes_of_the_umask(tmp_path, umask):
    inner = tmp_path / "inner"
    inner.mkdir()
    for path in (inner / "model.safetensors", inner / "mine", tmp_path / "outside"):
        path.touch()
        path.chmod(0o600)
    (inner / "link.safetensors").symlink_to(tmp_path / "outside")
    modes_by_umask(inner)
    assert _mode(inner / "model.safetensors") == 0o666 & ~umask
    assert _mode(tmp_path / "outside") == 0o600
    assert _mode(inner / "mine") == 0o600
    assert len(list(inner.iterdir())) == 3


def test_a_link_is_replaced_and_what_it_pointed_to_stays(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "a").symlink_to(victim)
    write_atomically(tmp_path / "a", "new")
    assert victim.read_text() == "precious"
    assert not (tmp_path / "a").is_symlink()
    assert (tmp_path / "a").read_text() == "new"


def test_nothing_is_added_through_a_link(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious\n")
    (tmp_path / "records.jsonl").symlink_to(victim)
    with pytest.raises(OSError, match="symbolic links"):
        RecordLog(tmp_path / "records.jsonl").append([Record("a", 1, "", "measured")])
    assert victim.read_text() == "precious\n"


@pytest.mark.parametrize("dangling", [False, True])
def test_a_lock_that_is_a_link_is_refused_and_its_target_keeps_its_content(tmp_path, dangling):
    victim = tmp_path / "victim"
    if not dangling:
        victim.write_text("precious")
    run = tmp_path / "run"
    run.mkdir()
    (run / ".lock").symlink_to(victim)
    with pytest.raises(UsageError, match="is a link"), held_alone(run, "run"):
        pass
    assert victim.exists() is not dangling
    assert dangling or victim.read_text() == "precious"


def test_a_guessed_name_beside_the_file_does_not_help(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    for name in (f".a.{os.getpid()}", ".a.part", "a.part", "a.new"):
        (tmp_path / name).symlink_to(victim)
    write_atomically(tmp_path / "a", "new")
    assert victim.read_text() == "precious"


def test_a_failure_leaves_the_old_file_and_nothing_beside_it(tmp_path):
    write_atomically(tmp_path / "a", "old")

    def fail():
        with replacing(tmp_path / "a") as beside:
            beside.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_text() == "old"


def test_a_name_of_the_longest_length_can_be_written(tmp_path):
    path = tmp_path / ("n" * 250)
    write_atomically(path, b"bytes")
    assert path.read_bytes() == b"bytes"


def test_what_a_killed_process_left_goes_and_what_another_still_writes_stays(tmp_path):
    path = tmp_path / "a"
    path.write_text("old")
    with subprocess.Popen(
        [sys.executable, "-c", WRITING, str(path)], stdout=subprocess.PIPE
    ) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        write_atomically(path, "new")
        (half,) = tmp_path.glob(".a.*.part/content/a")
        assert half.read_text() == "half"
        writer.send_signal(signal.SIGKILL)
    assert len(list(tmp_path.iterdir())) == 2
    write_atomically(path, "newer")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert path.read_text() == "newer"
