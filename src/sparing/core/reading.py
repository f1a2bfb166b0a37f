"""Read untrusted files: plain files only, and JSON within bounds."""

from __future__ import annotations

import json
import math
import os
import stat
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from sparing.core.errors import DataError, SparingError

DEEPEST = 100  # levels of lists and objects; our own files have at most ten
LARGEST = 1e300  # of a number; sums and squares of larger ones overflow
DIGITS = 300  # of a whole number
JSON_BYTES = 2**28  # of one file; the largest that a study wrote has 15 MB


def open_plain(path: Path) -> BinaryIO:
    """Open a file for reading in bytes; raises ``OSError`` unless it is a plain file.

    Reading a pipe, a socket or a device instead of a file would block forever.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(0, "it is not a plain file", str(path))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_plain(path: Path) -> bytes:
    """All bytes of a plain file; raises ``OSError``."""
    with open_plain(path) as file:
        return file.read()


def parse_json(text: str | bytes, *, finite: bool = True) -> Any:
    """The value of a JSON text.

    Raises ``ValueError`` for a text that is not JSON, for whole numbers of more than 300 digits and
    for more than 100 levels of nesting. Where ``finite``, it also raises it for NaN, infinities and
    fractions above 1e300 (transformers writes such into its own files).
    """
    text = text.decode("utf-8") if isinstance(text, bytes) else text
    hooks: dict[str, Any] = {"parse_constant": _refuse, "parse_float": _fraction} if finite else {}
    try:
        content = json.loads(text, parse_int=_whole_number, **hooks)
    except RecursionError as error:
        raise ValueError(f"it is nested deeper than {DEEPEST} levels") from error
    if text.count("[") + text.count("{") > DEEPEST:
        _require_shallow(content)
    return content


def read_json(path: Path, error: type[SparingError] = DataError, *, finite: bool = True) -> Any:
    """The value in a JSON file (UTF-8), within the bounds of ``parse_json`` and 256 MiB.

    Raises ``error`` in one line that names the file.
    """
    try:
        with open_plain(path) as file:
            text = file.read(JSON_BYTES + 1)
    except (OSError, ValueError) as cause:
        reason = getattr(cause, "strerror", None) or str(cause)
        raise error(f"{path} cannot be read: {reason}") from cause
    if len(text) > JSON_BYTES:
        raise error(f"{path} cannot be read: it has more than {JSON_BYTES >> 20} MiB")
    try:
        return parse_json(text.decode("utf-8"), finite=finite)
    except ValueError as cause:
        no_text = isinstance(cause, UnicodeDecodeError)
        reason = "it is not UTF-8 text" if no_text else f"it is not JSON: {cause}"
        raise error(f"{path} cannot be read: {reason}") from cause


def read_object(
    path: Path, error: type[SparingError] = DataError, *, finite: bool = True
) -> dict[str, Any]:
    """The object in a JSON file, as ``read_json``; raises ``error`` for any other value."""
    content = read_json(path, error, finite=finite)
    if not isinstance(content, dict):
        raise error(f"{path} does not hold a JSON object")
    return content


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")


def _whole_number(text: str) -> int:
    if len(text) > DIGITS:
        raise ValueError(f"a number has {len(text):,} digits")
    return int(text)


def _fraction(text: str) -> float:
    value = float(text)
    if not math.isfinite(value) or abs(value) > LARGEST:
        raise ValueError(f"the number {text[:40]} is too large")
    return value


def _require_shallow(content: Any) -> None:
    """Raise ``ValueError`` where a value is nested too deep; it does not recurse itself."""
    level = [content]
    for _ in range(DEEPEST):
        level = [
            inner
            for value in level
            if isinstance(value, list | dict)
            for inner in (value.values() if isinstance(value, dict) else value)
        ]
        if not level:
            return
    raise ValueError(f"it is nested deeper than {DEEPEST} levels")
