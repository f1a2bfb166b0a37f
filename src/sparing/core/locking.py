"""A folder for one process at a time."""

from __future__ import annotations

import errno
import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sparing.core.errors import UsageError
from sparing.core.writing import open_lock


@contextmanager
def held_alone(folder: Path, other: str) -> Iterator[None]:
    """Create the folder if it is missing, and lock it until the block, or the process, ends.

    Raises ``UsageError`` where it cannot be written, where its ``.lock`` is a link, or where
    ``other``, such as "run", holds it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = open_lock(folder / ".lock")
    except OSError as error:
        link = error.errno == errno.ELOOP and (folder / ".lock").is_symlink()
        reason = f"{folder / '.lock'} is a link: remove it" if link else error.strerror
        raise UsageError(f"cannot write to {folder}: {reason}") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UsageError(f"{folder} is in use by another {other}") from error
        yield
