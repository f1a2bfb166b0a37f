"""What several mechanisms need: exact attention over a set of keys, feature sums, alignment."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor


def fused_softmax(
    q: Float[Tensor, "... queries dim"],
    k: Float[Tensor, "... keys dim"],
    v: Float[Tensor, "... keys dim"],
    allowed: Bool[Tensor, "... #queries keys"] | None = None,
    *,
    causal: bool = False,
    dropout: float = 0.0,
) -> Float[Tensor, "... queries dim"]:
    """softmax(q k^T / sqrt(dim)) v by PyTorch's fused kernel, over the allowed keys.

    A query that is allowed no key gets a finite value, with finite gradients: kernels disagree
    there (zeros or NaN), so such rows are opened to every key. ``causal`` is for as many queries
    as keys and no other mask.
    """
    if allowed is not None:
        allowed = allowed | ~allowed.any(-1, keepdim=True)
        if 2 < allowed.ndim < q.ndim:  # on CPU other masks than of two or all axes are not fused
            allowed = allowed.reshape((1,) * (q.ndim - allowed.ndim) + allowed.shape)
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask=allowed, dropout_p=dropout, is_causal=causal
    )


def wide(tensor: Tensor) -> Tensor:
    """The tensor in at least float32: for feature maps, exponentials and denominators."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def dots(
    rows: Float[Tensor, "*#batch count features"], vector: Float[Tensor, "*#batch features"]
) -> Float[Tensor, "... count"]:
    """Each row's dot product with one vector; the vector on the left is five times faster."""
    return (vector[..., None, :] @ rows.transpose(-1, -2))[..., 0, :]
