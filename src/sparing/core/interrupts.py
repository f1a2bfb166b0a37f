"""SIGTERM and SIGHUP end a program as Ctrl-C does: finished work is kept, locks are released."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

SIGNALS = (signal.SIGTERM, signal.SIGHUP)


class Terminated(KeyboardInterrupt):
    """SIGTERM or SIGHUP arrived; ``number`` is the signal's."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


def raise_terminated(number: int, frame: FrameType | None) -> NoReturn:
    """Handle a signal by raising ``Terminated`` in the main thread."""
    raise Terminated(number)


@contextmanager
def terminations_raised() -> Iterator[None]:
    """Raise ``Terminated`` on SIGTERM and SIGHUP until the block ends.

    Signals that the process ignores (``nohup``) or handles itself do not change. Nor does any
    signal outside the main thread, which alone receives signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    taken = [number for number in SIGNALS if signal.getsignal(number) is signal.SIG_DFL]
    for number in taken:
        signal.signal(number, raise_terminated)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)
