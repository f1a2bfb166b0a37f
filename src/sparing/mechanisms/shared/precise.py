"""Products on tensor cores that keep more than half precision: sums of two or three halves."""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from sparing.core.execution.path import LARGEST_HEAD
from sparing.mechanisms.shared.arithmetic import fused_softmax, wide
from sparing.mechanisms.shared.products import HALVES, in_parts


def precise_product(
    a: Float[Tensor, "batch rows inner"],
    b: Float[Tensor, "batch inner columns"],
    scale: Float[Tensor, "batch 1 columns"] | None = None,
) -> Float[Tensor, "batch rows columns"]:
    """a b, times ``scale``, in float32 for half inputs: its rounded form, and what that lost.

    Products of halves are summed in float32 but returned rounded. A second one subtracts the first
    before it rounds. Both run on tensor cores, and no input is copied to float32.
    """
    if a.dtype not in HALVES:
        product = torch.bmm(a, b)
        return product if scale is None else product * scale
    rounded = torch.bmm(a.detach(), b.detach())
    lost = torch.baddbmm(rounded, a, b, beta=-1)
    if scale is None:
        return wide(rounded) + lost
    return torch.addcmul(rounded * scale, lost, scale)


def attention_to_precise(
    q: Float[Tensor, "batch heads queries dim"],
    k: Float[Tensor, "batch heads keys dim"],
    v: Float[Tensor, "batch heads keys dim"],
    allowed: Bool[Tensor, "batch 1 1 keys"] | None,
) -> Float[Tensor, "batch heads queries dim"]:
    """Softmax attention in the type of the queries to keys and values in float32.

    Half queries meet keys and values as sums of two halves, as twice the features. Heads for which
    kernels allow no more are widened.
    """
    dim = q.shape[3]
    if q.dtype not in HALVES or 2 * dim > LARGEST_HEAD:
        return fused_softmax(wide(q), k, v, allowed).to(q.dtype)
    keys = torch.cat(in_parts(k * math.sqrt(2), q.dtype, 2), 3)  # for twice the features
    values = torch.cat(in_parts(v, q.dtype, 2), 3)
    mixed = fused_softmax(torch.cat([q, q], 3), keys, values, allowed)
    return mixed[..., :dim] + mixed[..., dim:]
