"""Sums weighted by a Gaussian of two rows, as one call of a fused softmax."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from sparing.mechanisms.shared.arithmetic import wide
from sparing.mechanisms.shared.products import in_parts

_PER_KEY = 8
"""Weight of the added key for each true one: what it adds is lost in rounding below that."""


def gaussian_sums(
    a: Float[Tensor, "batch heads rows dim"],
    b: Float[Tensor, "batch heads keys dim"],
    values: Float[Tensor, "batch heads keys dim"],
) -> Float[Tensor, "batch heads rows dim"]:
    """sum_j exp(-|a_i - b_j|^2 / (2 sqrt(dim))) values_j, at least in float32.

    No square is stored. A key more has a value of zero and the score |a_i|^2 / (2 sqrt(dim)) +
    log w, so that its weight before the softmax divides is w. With the share of the true keys the
    division is undone. Squared norms are features of their own, in parts.
    """
    if a.dtype == torch.float16:  # its least number is too large for weights divided by w
        a, b, values = wide(a), wide(b), wide(values)
    dim, keys, scale = a.shape[3], b.shape[2], 1 / math.sqrt(a.shape[3])
    weight = float(_PER_KEY * keys)
    of_rows = in_parts(_squared_norms(a) + 2 * math.log(weight) / scale, a.dtype)
    of_keys = in_parts(_squared_norms(b), b.dtype)
    count = len(of_rows)
    room = -(-(dim + 2 * count) // 8) * 8 - dim  # kernels want multiples of eight
    halves = a.new_full((*a.shape[:3], room - count), -0.5)
    rows = torch.cat([a, *of_rows, halves], 3)
    shown = F.pad(b, (0, room, 0, 1))
    shown[:, :, keys, dim : dim + count].fill_(0.5)
    shown[:, :, :keys, dim + count : dim + 2 * count] = torch.cat(of_keys, 3)
    mixed = F.pad(values, (0, room, 0, 1))
    mixed[:, :, :keys, dim].fill_(1)
    shares = F.scaled_dot_product_attention(rows, shown, mixed, scale=scale)
    added = (1 - wide(shares[..., dim : dim + 1])) / weight
    return shares[..., :dim] / added


def _squared_norms(
    rows: Float[Tensor, "batch heads rows dim"],
) -> Float[Tensor, "batch heads rows 1"]:
    """|row|^2, at least in float32."""
    dtype = torch.promote_types(rows.dtype, torch.float32)
    norms: Tensor = torch.linalg.vector_norm(rows, dim=-1, keepdim=True, dtype=dtype)
    return norms.square()
