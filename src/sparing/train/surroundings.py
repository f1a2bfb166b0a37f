"""Process state that a training run changes and restores: generators and Ctrl-C."""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch

from sparing.core.interrupts import SIGNALS, raise_terminated


@runtime_checkable
class Interruptible(Protocol):
    """Something that stops soon after its flag is set."""

    interrupted: bool


@contextmanager
def generators_kept() -> Iterator[None]:
    """Restore the global generators of Python, NumPy and PyTorch."""
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    devices = list(range(torch.cuda.device_count()))
    try:
        with torch.random.fork_rng(devices=devices):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002


@contextmanager
def interrupts_to(target: Interruptible) -> Iterator[None]:
    """Turn the first Ctrl-C into a flag, and raise it when the block has ended.

    SIGTERM and SIGHUP do the same where they raise ``Terminated``. A second signal raises at once.
    Only the main thread receives signals; in another thread nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, *SIGNALS)}
    usual: dict[int, Any] = {
        number: handler
        for number, handler in before.items()
        if callable(handler) and (number == signal.SIGINT or handler is raise_terminated)
    }
    arrived: list[int] = []

    def restore() -> None:
        for number, handler in usual.items():
            signal.signal(number, handler)

    def note(number: int, frame: FrameType | None) -> None:
        target.interrupted = True
        arrived.append(number)
        restore()

    for number in usual:
        signal.signal(number, note)
    try:
        yield
    finally:
        restore()
    for received in arrived:
        usual[received](received, None)
