"""Shared by several mechanisms: exact attention over a set of keys, feature sums, alignment."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
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

    A query without an allowed key gets a finite value, with finite gradients. Kernels disagree
    there (zeros or NaN), so such rows may see every key. ``causal`` needs as many queries as keys
    and no other mask.
    """
    if allowed is not None:
        allowed = allowed | ~allowed.any(-1, keepdim=True)
        if 2 < allowed.ndim < q.ndim:  # on CPU only masks of two or of all axes are fused
            allowed = allowed.reshape((1,) * (q.ndim - allowed.ndim) + allowed.shape)
    if q.ndim == 5 and torch.onnx.is_in_onnx_export():
        return _as_four(q, k, v, allowed, dropout)
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask=allowed, dropout_p=dropout, is_causal=causal
    )


def biased_softmax(
    q: Float[Tensor, "batch heads queries dim"],
    k: Float[Tensor, "batch heads keys dim"],
    v: Float[Tensor, "batch heads keys dim"],
    bias: Float[Tensor, "#batch heads queries keys"],
    allowed: Bool[Tensor, "#batch #heads #queries keys"] | None = None,
    *,
    dropout: float = 0.0,
) -> Float[Tensor, "batch heads queries dim"]:
    """softmax(q k^T / sqrt(dim) + bias) v by PyTorch's fused kernel, over the allowed keys.

    A query without an allowed key gets a finite value, as in ``fused_softmax``.
    """
    if allowed is not None:
        allowed = allowed | ~allowed.any(-1, keepdim=True)
        bias = bias.masked_fill(~allowed, -torch.inf)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, dropout_p=dropout)


def _as_four(
    q: Float[Tensor, "batch heads blocks queries dim"],
    k: Float[Tensor, "batch heads blocks keys dim"],
    v: Float[Tensor, "batch heads blocks keys dim"],
    allowed: Bool[Tensor, "#batch #heads #blocks queries keys"] | None,
    dropout: float,
) -> Float[Tensor, "batch heads blocks queries dim"]:
    """``fused_softmax`` over blocks for ONNX: its attention takes four axes only."""
    batch, blocks = q.shape[0], q.shape[2]
    q, k, v = (part.transpose(1, 2).flatten(0, 1) for part in (q, k, v))
    if allowed is not None:
        allowed = allowed.expand(batch, -1, blocks, -1, -1).transpose(1, 2).flatten(0, 1)
    mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed, dropout_p=dropout)
    return mixed.reshape(batch, blocks, *mixed.shape[1:]).transpose(1, 2)


def largest_until(
    values: Float[Tensor, "*rows tokens"] | Float[Tensor, "*rows"], axis: int
) -> Tensor:
    """The running maximum along an axis, without gradients; for ONNX by comparing all pairs."""
    values = values.detach()
    if not torch.onnx.is_in_onnx_export():
        return values.cummax(axis).values
    rows = values.movedim(axis, -1)
    future = torch.ones_like(rows[..., None] == rows[..., None, :]).triu(1)
    pairs = rows[..., None, :].masked_fill(future, torch.finfo(rows.dtype).min)
    return pairs.amax(-1).movedim(-1, axis)


def stable_order(codes: Int[Tensor, "*rows tokens"]) -> Int[Tensor, "*rows tokens"]:
    """Tokens by code and then by position.

    ONNX has no stable sort, but needs none without ties.
    """
    if not torch.onnx.is_in_onnx_export():
        return codes.sort(dim=-1, stable=True).indices
    tokens = codes.shape[-1]
    return (codes * tokens + torch.arange(tokens, device=codes.device)).sort(dim=-1).indices


def wide(tensor: Tensor) -> Tensor:
    """The tensor in at least float32: for feature maps, exponentials and denominators."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def dots(
    rows: Float[Tensor, "*#batch count features"], vector: Float[Tensor, "*#batch features"]
) -> Float[Tensor, "... count"]:
    """Each row's dot product with one vector, put on the left: that is five times faster."""
    return (vector[..., None, :] @ rows.transpose(-1, -2))[..., 0, :]
