"""Products on tensor cores that keep more than half precision: sums of two or three halves."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from sparing.mechanisms.shared.arithmetic import wide

HALVES = (torch.float16, torch.bfloat16)


def precise_product(
    a: Float[Tensor, "batch rows inner"], b: Float[Tensor, "batch inner columns"]
) -> Float[Tensor, "batch rows columns"]:
    """a b, in float32 for half inputs: its rounded form, and then what that lost.

    Products of halves are summed in float32 but returned rounded. A second one subtracts the first
    before it rounds. Both run on tensor cores, and no input is copied to float32.
    """
    if a.dtype not in HALVES:
        return torch.bmm(a, b)
    rounded = torch.bmm(a.detach(), b.detach())
    return wide(rounded) + torch.baddbmm(rounded, a, b, beta=-1)


def in_parts(values: Tensor, dtype: torch.dtype, count: int = 3) -> list[Tensor]:
    """Numbers of a type that sum to ``values``, largest first: one where the type is wide."""
    if dtype not in HALVES:
        return [values]
    parts = [values.to(dtype)]
    for _ in range(count - 1):
        values = values - parts[-1]
        parts.append(values.to(dtype))
    return parts
