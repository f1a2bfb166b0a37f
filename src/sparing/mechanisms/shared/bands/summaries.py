"""Blocks with last tokens that are seen from everywhere: one copy of these for many blocks."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sparing.mechanisms._summaries import Fixed
from sparing.mechanisms.shared.bands.windows import Aligned, Windows, windowed
from sparing.mechanisms.shared.memory import parts_of


def fixed_attention(
    rows: Aligned, fixed: Fixed, dropout: float
) -> Float[Tensor, "batch heads queries dim"]:
    """Exact softmax attention over the kept keys of ``fixed``; a query without any sees itself.

    The rows begin with a real token, where they have one. No loop but over parts that fit in
    memory.
    """
    q, k, v, real = rows.q, rows.k, rows.v, rows.real
    if not fixed.others:
        size = min(fixed.size, k.shape[2])
        inside = None
        if fixed.causal:
            inside = torch.ones(size, size, dtype=torch.bool, device=q.device).tril()
        windows = Windows(size, 0, 0, inside, past=fixed.causal)
        return windowed(q, k, v, real, windows, dropout)
    marked = _Summaries.of(rows, fixed)
    if fixed.own_block:
        return _with_own(rows, fixed, marked, dropout)
    return _alone(rows, fixed, marked, dropout)


@dataclass(frozen=True)
class _Summaries:
    """The last tokens of all blocks, (batch, heads, summaries, dim), and their positions."""

    k: Tensor
    v: Tensor
    places: Int[Tensor, " summaries"]
    real: Bool[Tensor, "#batch summaries"] | None

    @classmethod
    def of(cls, rows: Aligned, fixed: Fixed) -> _Summaries:
        """Those of rows; where a block is not full, some do not exist."""
        keys, size = rows.k.shape[2], fixed.size
        behind = -keys % size
        count = (keys + behind) // size
        order = torch.arange(count * size, device=rows.k.device)
        places = torch.unflatten(order, 0, (count, size))[:, size - fixed.summary :].flatten()
        real = rows.real
        if real is not None:
            real = F.pad(real, (0, behind))[:, places]
        elif behind:
            real = (places < keys)[None]
        streams = rows.k, rows.v
        k, v = (
            torch.unflatten(stream, 2, (count, size))[:, :, :, size - fixed.summary :].flatten(2, 3)
            for stream in (F.pad(part, (0, 0, 0, behind)) if behind else part for part in streams)
        )
        return cls(k, v, places, real)


def _alone(rows: Aligned, fixed: Fixed, marked: _Summaries, dropout: float) -> Tensor:
    """Queries against the summaries only; those that see none keep their own values."""
    q, offset = rows.q, rows.k.shape[2] - rows.q.shape[2]
    if not fixed.causal:
        seen = None if marked.real is None else marked.real[:, None, None]
        return _or_value(q, rows.v[:, :, offset:], marked, seen, dropout)
    positions = torch.arange(offset, rows.k.shape[2], device=q.device)
    needed = q.shape[0] * len(positions) * len(marked.places) * (1 + q.element_size())
    count = min(len(positions), parts_of(needed, q.device))
    groups = zip(
        q.tensor_split(count, 2),
        rows.v[:, :, offset:].tensor_split(count, 2),
        positions.tensor_split(count),
        strict=True,
    )
    mixed = []
    for inner, value, places in groups:
        seen = (marked.places <= places.unsqueeze(1))[None, None]
        seen = seen if marked.real is None else seen & marked.real[:, None, None]
        mixed.append(_or_value(inner, value, marked, seen, dropout))
    return torch.cat(mixed, 2) if count > 1 else mixed[0]


def _or_value(
    q: Tensor, value: Tensor, marked: _Summaries, seen: Tensor | None, dropout: float
) -> Tensor:
    if seen is None:
        return F.scaled_dot_product_attention(q, marked.k, marked.v, None, dropout)
    some = seen.any(3, keepdim=True)
    mixed = F.scaled_dot_product_attention(q, marked.k, marked.v, seen | ~some, dropout)
    return mixed.where(some, value)


def _with_own(rows: Aligned, fixed: Fixed, marked: _Summaries, dropout: float) -> Tensor:
    """Groups of blocks against a copy of the summaries and the group's own tokens, masked.

    A group has about half as many tokens as there are summaries. Then their copies are twice the
    row, and half as many scores again are computed as are seen.
    """
    size, keys, queries = fixed.size, rows.k.shape[2], rows.q.shape[2]
    group = max(1, len(marked.places) // (2 * size)) * size
    start = (keys - queries) // group * group
    count = -(-(keys - start) // group)
    front, behind = keys - queries - start, start + count * group - keys
    apart, real = rows.real is not None, rows.real
    q = _in_groups(F.pad(rows.q, (0, 0, front, behind)), group, apart)
    k, v = (
        _in_groups(F.pad(stream[:, :, start:], (0, 0, 0, behind)), group, apart)
        for stream in (rows.k, rows.v)
    )
    far = _lined(marked.k, apart), _lined(marked.v, apart)
    if real is None and behind:
        real = torch.ones(1, keys, dtype=torch.bool, device=q.device)
    if real is not None:
        real = torch.unflatten(F.pad(real[:, start:], (0, behind)), 1, (-1, group))
    seen = len(marked.places) + group
    needed = q.numel() // q.shape[3] // group * seen * 2 * q.shape[3] * q.element_size()
    needed += count * group * seen * (1 + q.element_size())
    step = -(-count // min(count, parts_of(needed, q.device)))
    mixed = []
    for first in range(0, count, step):
        part = slice(first, min(first + step, count))
        allowed = _allowed(fixed, marked, real, start + part.start * group, group, part)
        mixed.append(_mixed((q, k, v), far, allowed, part, dropout))
    whole = torch.cat(mixed, 2) if len(mixed) > 1 else mixed[0]
    whole = whole.transpose(0, 1) if apart else whole
    return whole.reshape(*rows.q.shape[:2], count * group, -1)[:, :, front : front + queries]


def _lined(stream: Tensor, apart: bool) -> Float[Tensor, "lines samples tokens dim"]:
    """With pads heads and then samples, since these have masks of their own; else all rows."""
    return stream.transpose(0, 1) if apart else stream.flatten(0, 1).unsqueeze(1)


def _in_groups(
    stream: Tensor, group: int, apart: bool
) -> Float[Tensor, "lines samples groups _ _"]:
    """The same, its tokens in groups."""
    return torch.unflatten(_lined(stream, apart), 2, (-1, group))


def _allowed(
    fixed: Fixed,
    marked: _Summaries,
    real: Tensor | None,
    start: int,
    group: int,
    part: slice,
) -> Bool[Tensor, "#batch #groups group keys"]:
    """The summaries and then the tokens of its own group that a query sees.

    A summary of its own block is seen as a summary only.
    """
    device, count = marked.places.device, part.stop - part.start
    order = torch.arange(group, device=device)
    inner = order // fixed.size == order[:, None] // fixed.size
    inner = inner & (order % fixed.size < fixed.size - fixed.summary)
    inner = inner.tril() if fixed.causal else inner
    far = torch.ones_like(marked.places, dtype=torch.bool)[None, None, None]
    if fixed.causal:
        positions = torch.arange(start, start + count * group, device=device)
        far = marked.places <= positions.unsqueeze(1)
        far = torch.unflatten(far, 0, (count, group))[None]
    if marked.real is not None:
        far = far & marked.real[:, None, None]
    near = inner[None, None]
    if real is not None:
        near = near & real[:, part].unsqueeze(2)
    shape = [max(pair) for pair in zip(far.shape[:3], near.shape[:3], strict=True)]
    allowed = torch.cat([far.expand(*shape, -1), near.expand(*shape, -1)], 3)
    return allowed if real is None else allowed | ~allowed.any(3, keepdim=True)


def _mixed(
    streams: tuple[Tensor, Tensor, Tensor],
    far: tuple[Tensor, Tensor],
    allowed: Tensor,
    part: slice,
    dropout: float,
) -> Float[Tensor, "lines samples tokens dim"]:
    """Some groups in one call, each with its copy of the summaries."""
    q, k, v = (stream[:, :, part] for stream in streams)
    own_k, own_v = (
        torch.cat([marked.unsqueeze(2).expand(-1, -1, q.shape[2], -1, -1), inner], 3).flatten(1, 2)
        for marked, inner in zip(far, (k, v), strict=True)
    )
    allowed = allowed.flatten(0, 1)[None]
    mixed = F.scaled_dot_product_attention(q.flatten(1, 2), own_k, own_v, allowed, dropout)
    return torch.unflatten(mixed, 1, (q.shape[1], -1)).flatten(2, 3)
