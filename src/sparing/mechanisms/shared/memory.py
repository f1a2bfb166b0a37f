"""How much of a device's memory one step of a computation may fill."""

from __future__ import annotations

import torch

_SHARE = 4
"""One part of the free memory in so many is filled at a time."""
_OF_A_PROCESSOR = 1 << 30


def parts(needed: int, most: int, device: torch.device) -> int:
    """In how many parts, up to ``most``, work that fills ``needed`` bytes is done.

    Few where memory allows it: each part launches kernels of its own. On the device "meta", and
    while a graph is recorded for another device, nothing is known of memory: one.
    """
    if device.type == "cuda" and not torch.compiler.is_compiling():
        room = torch.cuda.mem_get_info(device)[0]
        # Memory that the allocator holds and does not use is free as well.
        room += torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    elif device.type == "cpu":
        room = _OF_A_PROCESSOR * _SHARE
    else:
        return 1
    return max(1, min(most, -(-needed * _SHARE // max(1, room))))
