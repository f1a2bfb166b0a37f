"""The errors that a user may see: each is one clear line that names the mistake."""

from __future__ import annotations

import difflib
import errno
from collections.abc import Iterable

# How allocators of PyTorch, NumPy and ONNX Runtime word that memory ran out.
NO_MEMORY = ("can't allocate memory", "not enough memory", "out of memory", "bad_alloc")
# How PyTorch's writer words that a file could not be written.
FULL_DISK = ("PytorchStreamWriter", "inline_container", "iostream error")


class SparingError(Exception):
    """Base of all errors raised on purpose; the command line prints them without a traceback."""


class UsageError(SparingError, ValueError):
    """Something was asked for wrongly: an unknown name, a wrong shape, an impossible setting."""


class Unsupported(UsageError):
    """An option or input that this mechanism, layer or model cannot honour.

    Raised instead of ignoring what was asked; the message names the option.
    """


class NotFinite(UsageError):
    """A number that is not finite: of an input, or of a training that diverges."""


class DataError(SparingError):
    """A data file is missing, cut short or of another format; it says what to put where."""


class CheckpointError(SparingError):
    """A saved model or run is corrupt, foreign or from a newer version."""


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint such as ``; did you mean 'linformer'?``, or the list of what exists."""
    names = sorted(known)
    hint = _alike(name, names)
    return hint or ("; known: " + ", ".join(names) if names else "")


def require_choice(owner: str, option: str, value: object, known: Iterable[str]) -> None:
    """Raise ``UsageError`` unless an option's value is one of those known, which the line lists."""
    names = list(known)
    if value not in names:
        hint = _alike(str(value), names)
        raise UsageError(f"{owner}: {option} is {value!r}, not one of {', '.join(names)}{hint}")


def _alike(name: str, names: list[str]) -> str:
    close = difflib.get_close_matches(name, names, n=2, cutoff=0.6)
    return "; did you mean " + " or ".join(map(repr, close)) + "?" if close else ""


def is_full(cause: BaseException | None) -> bool:
    """Whether a disk ran full, which nobody did wrongly on the command line."""
    # safetensors tells the system's error in words only, PyTorch's writer by its own name
    words = (f"os error {errno.ENOSPC}", f"os error {errno.EDQUOT}", *FULL_DISK)
    numbers = (errno.ENOSPC, errno.EDQUOT)
    return getattr(cause, "errno", None) in numbers or any(word in str(cause) for word in words)


def lacks_memory(error: BaseException) -> bool:
    """Whether memory ran out; some allocators say so in the words of a RuntimeError only."""
    worded = isinstance(error, RuntimeError) and any(word in str(error) for word in NO_MEMORY)
    return worded or isinstance(error, MemoryError)
