"""A folder for one process at a time."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sparing.core.errors import UsageError


@contextmanager
def held_alone(folder: Path, other: str) -> Iterator[None]:
    """Make the folder where it is missing, and hold it until the block ends, or the process does.

    Raises ``UsageError`` where it cannot be written, or where ``other``, such as "run", holds it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("w")
    except OSError as error:
        raise UsageError(f"cannot write to {folder}: {error.strerror}") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UsageError(f"{folder} is in use by another {other}") from error
        yield
