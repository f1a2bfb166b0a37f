"""Progress of long work, reported to the caller without every function passing it on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Progress = Callable[[float, str], None]
_waiting: ContextVar[Progress | None] = ContextVar("waiting", default=None)


@contextmanager
def progress_to(progress: Progress) -> Iterator[None]:
    """Inside, ``waiting`` returns this: a function of the finished share and a text."""
    token = _waiting.set(progress)
    try:
        yield
    finally:
        _waiting.reset(token)


def waiting() -> Progress | None:
    """The function that receives progress; None if there is none."""
    return _waiting.get()
