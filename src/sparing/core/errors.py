"""The errors that a user may see: each is one clear line that names the mistake."""

from __future__ import annotations

import difflib
import errno
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

# Messages of PyTorch's, NumPy's and ONNX Runtime's allocators when memory runs out.
NO_MEMORY = ("can't allocate memory", "not enough memory", "out of memory", "bad_alloc")
# Messages of PyTorch's writer when a file cannot be written.
FULL_DISK = ("PytorchStreamWriter", "inline_container", "iostream error")

LINE_CHARACTERS, END_CHARACTERS = 400, 100
BREAKS = re.compile(r"[\t-\r\x1c-\x1e\x85\u2028\u2029]+")
QUOTED_CHARACTERS = 40
LISTED_CHARACTERS = 300
COMPARED_NAMES = 1000  # the search for similar names takes quadratic time
_option_form: ContextVar[str] = ContextVar("option_form", default="")


def one_line(text: str) -> str:
    """The text on one line of at most 400 characters, without control characters.

    A longer text is cut in its middle: the end often says what to do.
    """
    line = " ".join(part.strip() for part in BREAKS.split(text)).strip()
    line = "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in line)
    if len(line) <= LINE_CHARACTERS:
        return line
    return f"{line[: LINE_CHARACTERS - END_CHARACTERS - 5]} ... {line[-END_CHARACTERS:]}"


class SparingError(Exception):
    """Base of all errors raised on purpose; the command line prints them without a traceback.

    The message is always one line of at most 400 characters.
    """

    def __str__(self) -> str:
        return one_line(super().__str__())


class UsageError(SparingError, ValueError):
    """A wrong request: an unknown name, a wrong shape, an impossible setting."""


class Unsupported(UsageError):
    """An option or input that this mechanism, layer or model cannot honour.

    Raised instead of ignoring the request; the message names the option.
    """


class NotFinite(UsageError):
    """A number that is not finite: of an input, or of a training that diverges."""


class DeviceFull(SparingError):
    """A call does not fit into the memory of its device."""


class Diverged(NotFinite):
    """The loss of a training is not finite, in all of its processes at the same step."""


class ProcessLost(SparingError):
    """One of several processes of a training ended: it was killed, or the machine lost it."""


class DataError(SparingError):
    """A data file is missing, cut short or of another format; the message names its path."""


class CheckpointError(SparingError):
    """A saved model or run is corrupt, foreign or from a newer version."""


def quoted(value: object, limit: int = QUOTED_CHARACTERS) -> str:
    """A foreign value for a message: its repr on one line, cut to ``limit`` characters.

    A longer one ends in three dots. Texts keep their quotes, which are not counted.
    """
    if isinstance(value, str):
        text = repr(value[: limit + 1])
        inside = text[1:-1]
        return text if len(inside) <= limit else f"{text[0]}{inside[: limit - 3]}...{text[0]}"
    try:
        text = " ".join(repr(value).split())
    except Exception:  # Python refuses to write a whole number of 5,000 digits
        text = f"a value of type {type(value).__name__}"
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def listed(names: Iterable[object], most: int = 5) -> str:
    """The first names, separated by commas, each cut as in ``quoted``, and how many follow."""
    shown = [quoted(str(name))[1:-1] for name in names]
    more = f" and {len(shown) - most:,} more" if len(shown) > most else ""
    return ", ".join(shown[:most]) + more


@contextmanager
def option_form(form: str) -> Iterator[None]:
    """Within this context ``option`` writes options as ``form``, with {} for name=value."""
    token = _option_form.set(form)
    try:
        yield
    finally:
        _option_form.reset(token)


def option(name: str, value: object) -> str:
    """The way to set a task's option: ``skip_broken=True`` in Python.

    The command line has another form for each verb, such as ``--set
    task_options.skip_broken=true``: see ``option_form``. A value in capitals, such as NAME, is for
    the reader to fill in.
    """
    form = _option_form.get()
    if form:
        shown = str(value).lower() if isinstance(value, bool) else str(value)
        return form.format(f"{name}={shown}")
    to_fill_in = isinstance(value, str) and value.isupper()
    return f"{name}={value if to_fill_in else repr(value)}"


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint such as ``; did you mean 'linformer'?``, or the list of known names."""
    names = sorted(known)
    hint = _alike(name, names)
    if hint or not names:
        return hint
    shown, size = 0, 0
    while shown < len(names) and size <= LISTED_CHARACTERS:
        size += len(quoted(names[shown]))
        shown += 1
    return "; known: " + listed(names, shown)


def require_choice(owner: str, option: str, value: object, known: Iterable[str]) -> None:
    """Raise ``UsageError`` unless an option's value is one of the known ones, which it lists."""
    names = list(known)
    if value not in names:
        hint = _alike(str(value), names)
        raise UsageError(
            f"{owner}: {option} is {quoted(value)}, not one of {', '.join(names)}{hint}"
        )


def _alike(name: str, names: list[str]) -> str:
    short = [known[:QUOTED_CHARACTERS] for known in names[:COMPARED_NAMES]]
    close = difflib.get_close_matches(name[:QUOTED_CHARACTERS], short, n=2, cutoff=0.6)
    return "; did you mean " + " or ".join(map(quoted, close)) + "?" if close else ""


def is_full(cause: BaseException | None) -> bool:
    """Whether a disk ran full, which is not a mistake of the command line."""
    # safetensors has the system's error in its message only, PyTorch's writer its own words
    words = (f"os error {errno.ENOSPC}", f"os error {errno.EDQUOT}", *FULL_DISK)
    numbers = (errno.ENOSPC, errno.EDQUOT)
    return getattr(cause, "errno", None) in numbers or any(word in str(cause) for word in words)


def lacks_memory(error: BaseException) -> bool:
    """Whether memory ran out; some allocators say so only in a RuntimeError's message."""
    worded = isinstance(error, RuntimeError) and any(word in str(error) for word in NO_MEMORY)
    return worded or isinstance(error, MemoryError)
