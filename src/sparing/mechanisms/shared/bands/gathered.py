"""Blocks of queries, each against key blocks of its own choice: gathered at once, in one call."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor


@dataclass(frozen=True)
class Chosen:
    """The different key blocks that each block of queries sees: of a sample or all, by head or not.

    Slots with a number outside the row hold none, the same ones in all heads; ``complete`` says
    that there are none of these. ``causal`` needs a block's own number in slot 0, and smaller ones
    in the others.
    """

    size: int
    blocks: Int[Tensor, "#batch #heads rows slots"]
    causal: bool = False
    complete: bool = False


def gathered(
    q: Float[Tensor, "batch heads queries dim"],
    k: Float[Tensor, "batch heads keys dim"],
    v: Float[Tensor, "batch heads keys dim"],
    real: Bool[Tensor, "batch keys"] | None,
    chosen: Chosen,
    dropout: float = 0.0,
) -> Float[Tensor, "batch heads blocks size dim"]:
    """Exact softmax attention of each block of queries over the real keys of its chosen blocks.

    Blocks count from token 0, and the queries are the last tokens. A query without a key gets a
    finite value. Heads are beside the batch where a mask serves all of them, else beside blocks.
    """
    batch, heads, queries, dim = q.shape
    behind = -k.shape[2] % chosen.size
    numbers = chosen.blocks[:, :, (k.shape[2] - queries) // chosen.size :]
    own_k, own_v = (_taken(stream, numbers, chosen.size, behind) for stream in (k, v))
    allowed = _allowed(numbers, real, chosen, k.shape[2])
    lines = batch * heads if chosen.causal and real is None else batch
    mixed = F.scaled_dot_product_attention(
        blocked(q, k.shape[2], chosen.size).reshape(lines, -1, chosen.size, dim),
        own_k.view(lines, -1, own_k.shape[1], dim),
        own_v.view(lines, -1, own_v.shape[1], dim),
        allowed,
        dropout,
    )
    return mixed.view(batch, heads, -1, chosen.size, dim)


def blocked(
    q: Float[Tensor, "batch heads queries dim"], keys: int, size: int
) -> Float[Tensor, "batch heads blocks size dim"]:
    """The last tokens of a row of ``keys`` in its blocks, without those that hold none."""
    front, behind = (keys - q.shape[2]) % size, -keys % size
    q = F.pad(q, (0, 0, front, behind)) if front or behind else q
    return torch.unflatten(q, 2, (-1, size))


def unblocked(
    mixed: Float[Tensor, "batch heads blocks size dim"], keys: int, queries: int
) -> Float[Tensor, "batch heads queries dim"]:
    """Undo ``blocked``."""
    front = (keys - queries) % mixed.shape[3]
    return mixed.flatten(2, 3)[:, :, front : front + queries]


def _taken(
    stream: Tensor, numbers: Int[Tensor, "#batch #heads rows slots"], size: int, behind: int
) -> Float[Tensor, "blocks keys dim"]:
    """The chosen blocks of keys or values, for all samples, heads and blocks of queries."""
    batch, heads, _, dim = stream.shape
    stream = F.pad(stream, (0, 0, 0, behind)) if behind else stream
    count = stream.shape[2] // size
    starts = torch.arange(batch * heads, device=stream.device).view(batch, heads, 1, 1) * count
    places = numbers.clamp(0, count - 1) + starts
    blocks = stream.reshape(-1, size * dim).index_select(0, places.flatten())
    return blocks.view(-1, numbers.shape[3] * size, dim)


def _allowed(
    numbers: Int[Tensor, "#batch #heads rows slots"],
    real: Tensor | None,
    chosen: Chosen,
    keys: int,
) -> Bool[Tensor, "#batch blocks #size keys"] | None:
    """Which keys of its blocks a query sees, in the shape of the kernel; None for all."""
    size, count = chosen.size, -(-keys // chosen.size)
    filled = ((numbers >= 0) & (numbers < count)).repeat_interleave(size, 3)
    if chosen.causal and real is None:
        filled = filled[0, 0].unsqueeze(1)
        past = torch.ones(size, size, dtype=torch.bool, device=numbers.device).tril()
        behind = filled[..., size:].expand(-1, size, -1)
        return torch.cat([past.expand(len(filled), -1, -1), behind], 2)[None]
    if chosen.complete and real is None and keys == count * size:
        return None
    if real is None:
        real = torch.ones(1, keys, dtype=torch.bool, device=numbers.device)
    flags = torch.unflatten(F.pad(real, (0, count * size - keys)), 1, (count, size))
    samples = torch.arange(len(real), device=numbers.device).view(-1, 1, 1, 1)
    seen = (flags[samples, numbers.clamp(0, count - 1)].flatten(3) & filled).flatten(1, 2)
    seen = seen.unsqueeze(2)
    if not chosen.causal:
        return seen | ~seen.any(3, keepdim=True)
    past = torch.ones(size, seen.shape[3], dtype=torch.bool, device=seen.device)
    past[:, :size].tril_()
    itself = torch.eye(size, seen.shape[3], dtype=torch.bool, device=seen.device)
    return (seen & past) | itself
