"""Squares, computed in as few parts as a device's memory takes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from sparing.core.tracing import is_traced

SHARE = 0.5
"""Of the free memory, what one part may fill: the caller needs room as well."""
SMALL = 1 << 28
"""Bytes that always fit: free memory is not looked up for less."""


def parts_of(needed_bytes: int, device: torch.device) -> int:
    """In how many parts work of so many bytes fits a share of the device's free memory.

    One where free memory is unknown: on any device but CUDA, and in a graph, which must not
    depend on it.
    """
    if device.type != "cuda" or needed_bytes <= SMALL or is_traced():
        return 1
    return max(1, -(-needed_bytes // max(1, int(SHARE * free_bytes(device)))))


def free_bytes(device: torch.device) -> int:
    """Bytes of a CUDA device that nobody uses, with those that PyTorch holds in reserve."""
    reserved = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(torch.cuda.mem_get_info(device)[0]) + reserved


def by_parts(
    rows: Callable[[slice], Tensor], count: int, needed_bytes: int, device: torch.device
) -> Tensor:
    """``rows`` of all ``count`` queries, joined along axis 2, in as few parts as fit.

    Of several parts none keeps its square for gradients: the backward pass computes it again.
    """
    parts = min(count, parts_of(needed_bytes, device))
    if parts == 1:
        return rows(slice(0, count))
    step = -(-count // parts)
    slices = [slice(start, min(start + step, count)) for start in range(0, count, step)]
    if not torch.is_grad_enabled():
        return torch.cat([rows(part) for part in slices], 2)
    again = [
        checkpoint(rows, part, use_reentrant=False, preserve_rng_state=False) for part in slices
    ]
    return torch.cat(again, 2)
