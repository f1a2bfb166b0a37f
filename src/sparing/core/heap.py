"""The heap of the C library (glibc): keep what is freed for a while, or give it back."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# The numbers of malloc.h.
TRIM, TOP_PAD, FROM_SYSTEM = -1, -2, -3
MIB = 2**20
KEPT = {FROM_SYSTEM: 1024 * MIB, TRIM: -1, TOP_PAD: 256 * MIB}
# What the C library ends at by itself after it has freed blocks of 32 MiB.
USUAL = {FROM_SYSTEM: 32 * MIB, TRIM: 64 * MIB, TOP_PAD: MIB // 8}
GIVEN = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_", "GLIBC_TUNABLES")


@contextmanager
def freed_kept() -> Iterator[None]:
    """Keep freed memory in the process, which the next step of a training needs again.

    Else the C library gives large blocks back and gets new pages, which the kernel clears: a tenth
    of the time of a step, or more. Settings from the environment are left alone. Elsewhere than
    with glibc nothing changes.
    """
    change = _function("mallopt")
    if change is None or any(name in os.environ for name in GIVEN):
        yield
        return
    for number, value in KEPT.items():
        change(number, value)
    try:
        yield
    finally:
        for number, value in USUAL.items():
            change(number, value)
        return_freed()


def return_freed() -> None:
    """Give freed memory back to the system."""
    trim = _function("malloc_trim")
    if trim is not None:
        trim(0)


def _function(name: str) -> Callable[..., int] | None:
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None
