"""Write files: whole or not at all, through no link, with a mode by the umask."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from sparing.core.scratch import scratch_beside, scratch_inside

_SAFE = os.O_NOFOLLOW | os.O_CLOEXEC


def _make(path: Path) -> int:
    """Create an empty file that must not exist yet; its mode is 0666 less the umask."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFE, 0o666)
    try:
        return os.fstat(descriptor).st_mode & 0o777
    finally:
        os.close(descriptor)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A new file to write to, in a scratch folder beside ``path``; it is moved there at the end.

    Readers see the old file or the new one whole. A link at ``path`` is replaced, not followed. The
    file is on disk before it is moved. Its mode follows the umask, also where a library wrote it
    with another. Nothing is left where the block raises; the next call for the same path removes
    the leftovers of a killed process. Missing folders are created.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with scratch_beside(path) as folder:
        fresh = folder / path.name
        mode = _make(fresh)
        yield fresh
        fresh.chmod(mode)
        sync(fresh)
        fresh.replace(path)


def sync(path: Path) -> None:
    """Return when a file's content is on disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def write_atomically(path: Path, content: str | bytes) -> None:
    """Replace a file in one step, so that a reader sees the old or the new one whole."""
    data = content.encode("utf-8") if isinstance(content, str) else content
    with replacing(path) as fresh, open_existing(fresh) as file:
        file.write(data)


def replace_quickly(path: Path, content: str) -> None:
    """As ``write_atomically``, but not on disk when this returns: for notes that may be lost."""
    with scratch_beside(path) as folder:
        fresh = folder / path.name
        _make(fresh)
        with open_existing(fresh) as file:
            file.write(content.encode())
        fresh.replace(path)


def open_existing(path: Path) -> BinaryIO:
    """Open an existing file for writing from its start on; raises ``OSError`` for a link."""
    return os.fdopen(os.open(path, os.O_RDWR | _SAFE), "rb+")


def append(path: Path, content: bytes) -> None:
    """Add bytes to a file, created if missing; they are on disk before this returns.

    Raises ``OSError`` for a link. Missing folders are created.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | _SAFE, 0o666)
    with os.fdopen(descriptor, "ab") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def open_lock(path: Path) -> BinaryIO:
    """Open a file to be locked, created if missing and never cut; ``OSError`` for a link."""
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | _SAFE, 0o666), "rb+")


def remove_replaced(path: Path) -> None:
    """Remove a file after the one written beside it is sure to stay."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    path.unlink()


def modes_by_umask(folder: Path) -> None:
    """Give the weights in a folder the mode 0666 less the umask.

    safetensors writes them through temporary files that only the owner may read.
    """
    with scratch_inside(folder, "mode") as scratch:
        mode = _make(scratch / "probe")
    for path in folder.glob("*.safetensors"):
        if not path.is_symlink():
            path.chmod(mode)
