"""Paths as people and files give them."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from sparing.core.errors import UsageError

LONGEST_NAME = 255  # bytes of one name in a path, on all systems we run on


def expanded(path: str | os.PathLike[str]) -> Path:
    """The path with ``~`` and ``~user`` replaced by that home.

    Raises ``UsageError`` for a path that cannot be: of an unknown user's home, through links that
    lead in a circle, with a name that is too long for any file, or with a null character.
    """
    text = os.fspath(path)
    longest = max((os.fsencode(part) for part in Path(text).parts), key=len, default=b"")
    if "\0" in text or len(longest) > LONGEST_NAME:
        why = "null character" if "\0" in text else f"name of more than {LONGEST_NAME} bytes"
        raise UsageError(f"no such file or folder: {text[:40]!r} has a {why} in it")
    try:
        found = Path(text).expanduser()
    except RuntimeError as error:
        raise UsageError(f"no such file or folder: {text[:40]!r} is of an unknown user") from error
    try:
        found.resolve()
    except (RuntimeError, OSError) as error:
        raise UsageError(f"no such file or folder: {text[:40]!r} is a circle of links") from error
    return found


def read_regular(path: Path) -> bytes:
    """All bytes of a regular file; raises ``OSError`` for a pipe, device, socket or folder.

    Opening one of these may wait for ever, or never come to an end.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        return file.read()
