"""Softmax over scores of all pairs for accelerators: all at once, as far as memory goes."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from sparing.core.mask import Mask
from sparing.mechanisms.shared.arithmetic import wide
from sparing.mechanisms.shared.memory import by_parts

SQUARE = 256.0
"""Squares are divided by it in half precision, so that float16 holds them."""

Scores = Callable[[Tensor, Tensor, slice], Tensor]


def attend(
    q: Float[Tensor, "batch heads queries dim"],
    k: Float[Tensor, "batch heads several_keys dim"],
    v: Float[Tensor, "batch heads several_keys dim"],
    mask: Mask,
    *,
    scale: float,
    copies: int = 1,
) -> Float[Tensor, "batch heads queries dim"]:
    """softmax(scale q k^T) v by PyTorch's fused kernel over the keys that the mask shows.

    Each of the mask's keys may be several that follow each other, ``copies`` of them.
    """
    queries, keys = q.shape[2], k.shape[2] // copies
    if mask.causal and mask.keep is None and queries == keys and copies == 1:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)
    allowed = mask.opened(queries, keys, q.device)

    def rows(part: slice) -> Tensor:
        seen = keys - queries + part.stop if mask.causal else keys
        shown = None if allowed is None else visible(allowed, part, seen)
        if shown is not None and copies > 1:
            shown = shown.repeat_interleave(copies, -1)
        seen_k, seen_v = (stream[:, :, : seen * copies] for stream in (k, v))
        return F.scaled_dot_product_attention(
            q[:, :, part], seen_k, seen_v, attn_mask=shown, scale=scale
        )

    hidden = 0 if allowed is None else allowed.numel() * copies * (1 + q.element_size())
    # no fused kernel takes float64: all scores are stored
    square = q.shape[0] * q.shape[1] * queries * k.shape[2] if q.dtype == torch.float64 else 0
    return by_parts(rows, queries, hidden + square * 3 * q.element_size(), q.device)


def attend_to_square(
    scores: Scores,
    q: Float[Tensor, "batch heads queries features"],
    k: Float[Tensor, "batch heads keys key_features"],
    v: Float[Tensor, "batch heads keys dim"],
    mask: Mask,
    numbers_per_pair: int = 1,
) -> Float[Tensor, "batch heads queries dim"]:
    """``attend_by_scores`` with few large operations; the result has the type of ``v``.

    Scores of the type of ``v`` are a bias of the fused kernel, which then rounds nothing more.
    Wider ones go through a softmax of their own.
    """
    queries, keys = q.shape[2], k.shape[2]
    allowed = mask.opened(queries, keys, q.device)

    def rows(part: slice) -> Tensor:
        seen = keys - queries + part.stop if mask.causal else keys
        products = scores(q[:, :, part], k[:, :, :seen], slice(None))
        shown = None if allowed is None else visible(allowed, part, seen)
        return _weighted(products, v[:, :, :seen], shown)

    pairs = q.shape[0] * q.shape[1] * queries * keys
    needed = pairs * (numbers_per_pair + 3) * max(4, q.element_size())
    return by_parts(rows, queries, needed, q.device)


def visible(
    allowed: Bool[Tensor, "#batch 1 #queries keys"], part: slice, keys: int
) -> Bool[Tensor, "#batch 1 #part seen"]:
    """What some queries see of the first keys."""
    rows = allowed if allowed.shape[2] == 1 else allowed[:, :, part]
    return rows[..., :keys]


def _weighted(scores: Tensor, v: Tensor, allowed: Tensor | None) -> Tensor:
    if allowed is not None:
        hide = scores.masked_fill if torch.is_grad_enabled() else scores.masked_fill_
        scores = hide(~allowed, -torch.inf)
    if scores.dtype != v.dtype:
        return scores.softmax(-1).to(v.dtype) @ v
    q, k = (v.new_zeros(*scores.shape[:2], count, 8) for count in scores.shape[2:])
    return F.scaled_dot_product_attention(q, k, v, attn_mask=scores)


def distance_factors(
    q: Float[Tensor, "batch heads queries dim"], k: Float[Tensor, "batch heads keys dim"]
) -> tuple[Float[Tensor, "batch heads queries width"], Float[Tensor, "batch heads keys width"]]:
    """Two tensors with |q_i - k_j|^2 as their product, right in half precision.

    A product of q and k alone would be rounded before the squares are added: near keys, which
    count most, would lose most.
    """
    lengths, key_lengths = squares(q), squares(k)
    for_q, ones_of_k = factors(lengths, torch.ones_like(key_lengths), q.dtype)
    for_k, ones_of_q = factors(key_lengths, torch.ones_like(lengths), q.dtype)
    return aligned([-2 * q, for_q, ones_of_q]), aligned([k, ones_of_k, for_k])


def squares(tensor: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch"]:
    """The squared length of each vector, in float32 at least."""
    return wide(tensor).square().sum(-1)


def factors(
    lengths: Float[Tensor, "*shape"], others: Float[Tensor, "..."], dtype: torch.dtype
) -> tuple[Float[Tensor, "*shape count"], Float[Tensor, "... count"]]:
    """Columns of two sides that add ``lengths`` x ``others`` to their product in ``dtype``.

    In half precision each number is stored as two, so that the sum is right to some 16 bits, and
    ``lengths`` are smaller by SQUARE.
    """
    if dtype == lengths.dtype:
        return lengths.unsqueeze(-1), others.unsqueeze(-1)
    length, length_rest = _halves(lengths / SQUARE, dtype)
    other, other_rest = _halves(others * SQUARE, dtype)
    return (
        torch.stack([length, length_rest, length], -1),
        torch.stack([other, other, other_rest], -1),
    )


def _halves(
    numbers: Float[Tensor, "*shape"], dtype: torch.dtype
) -> tuple[Float[Tensor, "*shape"], Float[Tensor, "*shape"]]:
    """Two numbers of half precision that add up to the wide one; the second passes gradients."""
    high = numbers.detach().to(dtype)
    return high, (numbers - high).to(dtype)


def aligned(columns: list[Tensor]) -> Tensor:
    """Columns beside each other, with zeros up to a multiple of 8, which fast kernels need."""
    width = sum(part.shape[-1] for part in columns)
    return F.pad(torch.cat(columns, -1), (0, -width % 8))
