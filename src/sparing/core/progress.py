"""How far long work has come, told to whoever waits without every function passing it on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Progress = Callable[[float, str], None]
_waiting: ContextVar[Progress | None] = ContextVar("waiting", default=None)


@contextmanager
def told_to(progress: Progress) -> Iterator[None]:
    """Inside, ``waiting`` gives this: a fraction of the work and a text for who waits for it."""
    token = _waiting.set(progress)
    try:
        yield
    finally:
        _waiting.reset(token)


def waiting() -> Progress | None:
    """Whom to tell how far the work has come; None where nobody waits."""
    return _waiting.get()
