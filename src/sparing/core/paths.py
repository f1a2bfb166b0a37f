"""Paths from users and files."""

from __future__ import annotations

import os
from pathlib import Path

from sparing.core.errors import UsageError

LONGEST_NAME = 255  # bytes of one name in a path, on all supported systems


def expanded(path: str | os.PathLike[str]) -> Path:
    """The path with ``~`` and ``~user`` replaced by that home.

    Raises ``UsageError`` for an impossible path: of an unknown user's home, through a circle of
    links, with too long a name, or with a null character.
    """
    text = os.fspath(path)
    longest = max((os.fsencode(part) for part in Path(text).parts), key=len, default=b"")
    if "\0" in text or len(longest) > LONGEST_NAME:
        why = "null character" if "\0" in text else f"name of more than {LONGEST_NAME} bytes"
        raise UsageError(f"no such file or folder: {text[:40]!r} has a {why} in it")
    try:
        full = Path(text).expanduser()
    except RuntimeError as error:
        raise UsageError(f"no such file or folder: {text[:40]!r} is of an unknown user") from error
    try:
        full.resolve()
    except (RuntimeError, OSError) as error:
        raise UsageError(f"no such file or folder: {text[:40]!r} is a circle of links") from error
    return full
