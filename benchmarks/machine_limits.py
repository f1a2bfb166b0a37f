"""What the machine itself can do: rates that a call's time is held against."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from sparing.core.record import Record
from sparing.measure.machine import synchronize, threads

REPEATS = 7


def limits(count: int, *, device: str = "cpu", dtype: str = "float32") -> list[Record]:
    """Matrix product, copy and exponential at ``count`` threads, the best of a few tries each.

    The product is 2,048 x 2,048 squares; the copy moves 256 MiB in and 256 MiB out; the
    exponential stays in the cache.
    """
    kind = getattr(torch, dtype)
    square = torch.randn(2048, 2048, device=device, dtype=kind)
    product = torch.empty_like(square)
    large = torch.zeros(256 * 2**20 // kind.itemsize, device=device, dtype=kind)
    copy = torch.empty_like(large)
    small = torch.randn(16384 if device == "cpu" else 2**24, device=device, dtype=kind)
    powers = torch.empty_like(small)
    with threads(count):
        rates = {
            "gemm_flops_per_s": (
                2 * 2048**3,
                _best_s(lambda: torch.mm(square, square, out=product)),
            ),
            "copy_bytes_per_s": (2 * 256 * 2**20, _best_s(lambda: copy.copy_(large))),
            "exp_per_s": (small.numel(), _best_s(lambda: torch.exp(small, out=powers), 200)),
        }
    return [
        Record(name, work / seconds, "1/s", "measured", {"threads": count}, count=REPEATS)
        for name, (work, seconds) in rates.items()
    ]


def _best_s(call: Callable[[], object], calls: int = 1) -> float:
    """The shortest time of one call: a limit is what was reached, not what was usual."""
    call()
    seconds = []
    for _ in range(REPEATS):
        synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        synchronize()
        seconds.append((time.perf_counter() - start) / calls)
    return min(seconds)
