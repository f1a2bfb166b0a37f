"""A thread with mounts of its own, which the processes that it starts see too, and nobody else."""

from __future__ import annotations

import ctypes
import socket
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

_MOUNTS, _NAMES = 0x20000, 0x4000000  # CLONE_NEWNS and CLONE_NEWUTS of Linux


@contextmanager
def apart(host: str) -> Iterator[Callable[..., Any]]:
    """Give what runs a function in such a thread, where the machine has another host name.

    Skips the test where that is not allowed. Its mounts end with the last of its processes.
    """
    with ThreadPoolExecutor(1) as thread:

        def do(work: Callable[..., Any], *given: Any) -> Any:
            return thread.submit(work, *given).result()

        if not do(_leave, host):
            pytest.skip("a disk of a process cannot be mounted here")
        yield do


def _leave(host: str) -> bool:
    unshare = getattr(ctypes.CDLL(None), "unshare", None)
    if unshare is None or unshare(_MOUNTS | _NAMES) != 0:
        return False
    socket.sethostname(host)
    private = subprocess.run(["mount", "--make-rprivate", "/"], check=False)
    return private.returncode == 0


def mount(folder: Path, size: str) -> None:
    """Lay a small disk over a folder."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    subprocess.run(command, check=True)


def unmount(folder: Path) -> None:
    """Take it off again."""
    subprocess.run(["umount", str(folder)], check=True)


def fill(disk: Path) -> Path:
    """Fill a disk with one file."""
    path = disk / "filler"
    with path.open("wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError:
            return path
    raise AssertionError("unreachable")
