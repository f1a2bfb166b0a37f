"""What a training run borrows from the process, and gives back: generators and Ctrl-C."""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Protocol, runtime_checkable

import numpy as np
import torch


@runtime_checkable
class Interruptible(Protocol):
    """Something that stops soon after its flag is set."""

    interrupted: bool


@contextmanager
def generators_kept() -> Iterator[None]:
    """Put the global generators of Python, NumPy and PyTorch back as they were."""
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
    """Turn the first Ctrl-C into a flag; a second one raises as usual.

    Only the main thread receives signals; in another thread nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)

    def note(number: int, frame: FrameType | None) -> None:
        target.interrupted = True
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
