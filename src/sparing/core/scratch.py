"""Folders to write into before their content moves to its path; only our own are ever removed."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MARK, MARKED = ".sparing", b"a scratch folder of sparing\n"
CONTENT, SUFFIX = "content", ".part"
LONGEST_NAME = 100  # of the name that a scratch folder repeats, in bytes; systems allow 255 in all


@contextmanager
def scratch_beside(target: Path) -> Iterator[Path]:
    """A new, empty folder on the file system of ``target``, to be moved there by ``replace``.

    It is removed when the block ends, with everything that has not been moved. Leftovers of a
    killed process for the same target are removed first. Raises ``OSError`` where nothing can be
    written.
    """
    with scratch_inside(target.parent, target.name) as folder:
        yield folder


@contextmanager
def scratch_inside(parent: Path, name: str) -> Iterator[Path]:
    """As ``scratch_beside``, in an existing ``parent``; ``name`` states its purpose."""
    prefix = f".{os.fsdecode(os.fsencode(name)[:LONGEST_NAME])}."
    sweep(parent, prefix)
    outer = Path(tempfile.mkdtemp(prefix=prefix, suffix=SUFFIX, dir=parent))
    mark = -1
    try:
        # locked before it is marked: no process takes it for a dead process's
        mark = os.open(outer / MARK, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        _locked(mark)
        os.write(mark, MARKED)
        inner = outer / CONTENT  # with the modes that the umask gives, and without the mark
        inner.mkdir()
        yield inner
    finally:
        try:
            _remove(outer)
        finally:
            if mark >= 0:
                os.close(mark)


def sweep(parent: Path, prefix: str) -> None:
    """Remove the scratch folders of processes that have ended; all else stays."""
    try:
        names = os.listdir(parent)
    except OSError:  # a folder may be writable and not readable
        return
    for name in names:
        if name.startswith(prefix) and name.endswith(SUFFIX):
            _remove_dead(parent / name)


def _remove_dead(folder: Path) -> None:
    try:
        mark = os.open(folder / MARK, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return
    try:
        regular = stat.S_ISREG(os.fstat(mark).st_mode)
        if regular and os.read(mark, len(MARKED) + 1) == MARKED and _locked(mark):
            _remove(folder)
    finally:
        os.close(mark)


def _remove(outer: Path) -> None:
    """Remove a scratch folder; its mark goes last, so that an interrupted removal can continue."""
    shutil.rmtree(outer / CONTENT, ignore_errors=True)
    shutil.rmtree(outer, ignore_errors=True)


def _locked(mark: int) -> bool:
    """Whether this process now holds the lock of an open mark; it ends with the process."""
    try:
        fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # held by another; or a file system without locks, where nothing is swept
        return False
    return True
