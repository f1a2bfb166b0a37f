"""Work for worker processes; a function that a process imports must belong to a module."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path


def square(number: int) -> int:
    return number * number


def refuse(text: str) -> None:
    raise ValueError(text)


def die_until(tally: Path, times: int) -> int:
    """Be killed so many times, then say in which try this is."""
    with tally.open("a") as file:
        file.write("x")
    tries = len(tally.read_text())
    if tries <= times:
        os.kill(os.getpid(), signal.SIGKILL)
    return tries


def surroundings() -> tuple[int, str, list[str]]:
    """Threads of PyTorch, the variable that sets them, and the import path."""
    import torch

    return torch.get_num_threads(), os.environ["OMP_NUM_THREADS"], sys.path


def imported_from(name: str) -> str:
    module = __import__(name)
    return str(module.__file__)


def wait_until_interrupted(started: Path, saved: Path) -> None:
    started.touch()
    try:
        time.sleep(60)
    except KeyboardInterrupt:
        saved.touch()
        raise


def wait(started: Path, seconds: float) -> None:
    started.touch()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            time.sleep(seconds)
        except KeyboardInterrupt:
            continue
