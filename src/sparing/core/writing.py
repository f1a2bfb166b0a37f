"""Write files: whole or not at all, through no link, readable by whom the umask lets read."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

PART = ".part"  # how the name of a file that is not whole yet ends
_SAFE = os.O_NOFOLLOW | os.O_CLOEXEC
_TRIES = 100


def _open_new(path: Path) -> BinaryIO:
    """Make a file that must not exist yet; its mode is what the umask leaves of 0666."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFE, 0o666)
    return os.fdopen(descriptor, "wb")


def _fresh_beside(path: Path) -> Path:
    """Make an empty file beside ``path``, in a name that nobody can know before."""
    for _ in range(_TRIES):
        beside = path.with_name(f".{path.name[:100]}.{secrets.token_hex(6)}{PART}")
        with contextlib.suppress(FileExistsError):
            _open_new(beside).close()
            return beside
    raise OSError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A new file beside ``path`` to write to; it takes the place of ``path`` when the block ends.

    Readers see the old file or the new one whole. A link in its place is replaced, not followed.
    The file is on disk before it is moved. Its mode follows the umask, also where a library
    wrote it with another. Nothing is left where the block raises. Missing folders are made.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = _fresh_beside(path)
    try:
        mode = beside.stat().st_mode & 0o777
        yield beside
        beside.chmod(mode)
        with beside.open("rb") as file:
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def write_atomically(path: Path, content: str | bytes) -> None:
    """Replace a file in one step, so that a reader sees the old or the new one whole."""
    data = content.encode("utf-8") if isinstance(content, str) else content
    with replacing(path) as beside, open_existing(beside) as file:
        file.write(data)


def open_existing(path: Path) -> BinaryIO:
    """Open a file that is there for writing from its start on; raises ``OSError`` for a link."""
    return os.fdopen(os.open(path, os.O_RDWR | _SAFE), "rb+")


def append(path: Path, content: bytes) -> None:
    """Add bytes to a file, made where it is missing; they are on disk before this returns.

    Raises ``OSError`` for a link. Missing folders are made.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | _SAFE, 0o666)
    with os.fdopen(descriptor, "ab") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def open_lock(path: Path) -> BinaryIO:
    """Open a file to be locked, made where it is missing and never cut; ``OSError`` for a link."""
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | _SAFE, 0o666), "rb+")


def modes_by_umask(folder: Path) -> None:
    """Give the weights in a folder the modes that the umask leaves of 0666.

    safetensors writes them through temporary files that the owner alone may read.
    """
    probe = _fresh_beside(folder / "mode")
    try:
        mode = probe.stat().st_mode & 0o777
    finally:
        probe.unlink()
    for path in folder.glob("*.safetensors"):
        if not path.is_symlink():
            path.chmod(mode)
