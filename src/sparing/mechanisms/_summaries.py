"""Blocks of tokens: their last tokens are summaries, for their own block and for all others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from sparing.core.tracing import is_traced
from sparing.mechanisms._alignment import rolled
from sparing.mechanisms._pieces import Row
from sparing.mechanisms.shared.arithmetic import fused_softmax

_CACHED_ELEMENTS = 1 << 19
"""Elements of keys that are concatenated at a time: 2 MiB in float32."""


@dataclass(frozen=True)
class Fixed:
    """Blocks of ``size`` tokens, of which the last ``summary`` are seen from outside.

    A query sees its own block (``own_block``), the summaries of all blocks (``others``), or both.
    """

    size: int
    summary: int
    own_block: bool
    others: bool
    causal: bool

    def summaries(self, tokens: int) -> int:
        """How many of the first ``tokens`` tokens are summaries."""
        blocks, rest = divmod(tokens, self.size)
        return blocks * self.summary + max(0, rest - (self.size - self.summary))


@dataclass(frozen=True)
class Segment:
    """Queries from ``start`` to ``stop``: ``blocks`` whole blocks, or a part of one."""

    start: int
    stop: int
    blocks: int = 1


def segments(queries: int, keys: int, size: int) -> Iterator[Segment]:
    """The queries, the last tokens of a row, in order: a block's rest, whole blocks, a rest."""
    start = keys - queries
    first, last = min(-(-start // size) * size, keys), keys // size * size
    if start < first:
        yield Segment(start, first)
    if first < last:
        yield Segment(first, last, (last - first) // size)
    if max(first, last) < keys:
        yield Segment(max(first, last), keys)


def fixed_attention(
    row: Row, fixed: Fixed, dropout: float, out: Tensor | None = None
) -> Float[Tensor, "batch heads queries dim"]:
    """Exact softmax attention of one row over the keys of ``fixed``; itself if there are none.

    On CPU without gradients it takes some heads and blocks at a time: the copies stay in the cache.
    """
    if is_traced():
        return _without_loops(row, fixed, dropout)
    queries, keys, dim = row.q.shape[2], row.k.shape[2], row.q.shape[3]
    on_cpu = row.q.device.type == "cpu"
    out = row.room() if out is None and on_cpu else out
    if out is None or not on_cpu:
        return torch.cat([part for _, _, part in _pieces(row, fixed, keys * keys, dropout)], 2)
    heads = max(1, _CACHED_ELEMENTS // (keys * dim))
    for head in range(0, row.q.shape[1], heads):
        group = row.heads(head, head + heads)
        step = max(1, _CACHED_ELEMENTS // (group.q.shape[1] * dim))
        for start, stop, part in _pieces(group, fixed, step, dropout):
            shift = keys - queries
            out[:, head : head + heads, start - shift : stop - shift] = part
    return out


def _pieces(row: Row, fixed: Fixed, step: int, dropout: float) -> Iterator[tuple[int, int, Tensor]]:
    """The result piece by piece, with about ``step`` keys in each."""
    keys, size = row.k.shape[2], fixed.size
    places = torch.arange(keys, device=row.k.device)
    places = places[places % size >= size - fixed.summary] if fixed.others else places[:0]
    marked = _Marked(row.k[0, :, places], row.v[0, :, places], places)
    for segment in segments(row.q.shape[2], keys, size):
        length = (segment.stop - segment.start) // segment.blocks
        count = max(1, step // max(1, size * fixed.own_block + len(places)))
        for start in range(segment.start, segment.stop, count * length):
            stop = min(segment.stop, start + count * length)
            part = Segment(start, stop, (stop - start) // length)
            yield start, stop, _piece(row, fixed, marked, part, dropout)


@dataclass(frozen=True)
class _Marked:
    """The summaries of a row, (heads, summaries, dim), and their positions in it."""

    k: Tensor
    v: Tensor
    places: Tensor

    def before(self, count: int) -> _Marked:
        """The first ``count`` of them."""
        return _Marked(self.k[:, :count], self.v[:, :count], self.places[:count])


def _piece(
    row: Row, fixed: Fixed, marked: _Marked, part: Segment, dropout: float
) -> Float[Tensor, "1 heads queries dim"]:
    """Some whole blocks, or a part of one, against the keys that each of them sees."""
    keys, size = row.k.shape[2], fixed.size
    if not fixed.own_block:
        marked = marked.before(fixed.summaries(part.stop)) if fixed.causal else marked
        return _summaries_only(row, fixed, marked, part, dropout)
    first = part.start // size * size
    whole, shift = min(size, keys - first), keys - row.q.shape[2]
    length = (part.stop - part.start) // part.blocks
    q = _in_blocks(row.q[0, :, part.start - shift : part.stop - shift], length)
    stop = first + (part.blocks - 1) * size + whole
    # Summaries of the block itself are seen as summaries; the rest excludes them.
    own_size = whole if fixed.causal or not fixed.others else min(whole, size - fixed.summary)
    k, v = (
        _in_blocks(stream[0, :, first:stop], whole)[:, :, :own_size] for stream in (row.k, row.v)
    )
    if not fixed.others:
        if fixed.causal and row.keep is None and q.shape[2] == whole:
            return fused_softmax(q, k, v, causal=True, dropout=dropout).flatten(1, 2)[None]
        marked = marked.before(0)
    elif fixed.causal:
        marked = marked.before(fixed.summaries(stop - whole))
    allowed = _allowed(row, fixed, marked, part, (first, whole, own_size))
    if marked.k.shape[1]:
        k, v = (
            torch.cat([seen.unsqueeze(1).expand(-1, part.blocks, -1, -1), inner], 2)
            for seen, inner in ((marked.k, k), (marked.v, v))
        )
    return fused_softmax(q, k, v, allowed, dropout=dropout).flatten(1, 2)[None]


def _allowed(
    row: Row, fixed: Fixed, marked: _Marked, part: Segment, block_part: tuple[int, int, int]
) -> Bool[Tensor, "1 blocks queries keys"] | None:
    """Which of the summaries and then of the block's own keys a query may see; None for all.

    ``block_part`` is the start of the first block, its length, and how many of its keys are used.
    """
    if not fixed.causal and row.keep is None:
        return None
    first, whole, own_size = block_part
    blocks = torch.arange(first, part.stop, fixed.size, device=row.k.device)[:, None, None]
    length = (part.stop - part.start) // part.blocks
    seen = marked.places < blocks if fixed.causal else marked.places >= 0 * blocks
    near = torch.ones(length, own_size, dtype=torch.bool, device=row.k.device)
    if fixed.causal:
        near = near.tril(part.start - first)
    near = near.expand(part.blocks, -1, -1)
    if row.keep is not None:
        seen = seen & row.keep[0, marked.places]
        stop = first + (part.blocks - 1) * fixed.size + whole
        inner = row.keep[0, first:stop].view(part.blocks, 1, whole)
        near = near & inner[:, :, :own_size]
    # Fused kernels take masks of two or four dimensions, not of three.
    return torch.cat([seen.expand(-1, length, -1), near], 2)[None]


def _summaries_only(
    row: Row, fixed: Fixed, marked: _Marked, part: Segment, dropout: float
) -> Float[Tensor, "1 heads queries dim"]:
    """Queries against summaries alone; a query that sees none keeps its own value."""
    shift = row.k.shape[2] - row.q.shape[2]
    q = row.q[:, :, part.start - shift : part.stop - shift]
    value = row.v[:, :, part.start : part.stop]
    if not len(marked.places):
        return value + 0 * q
    k, v = marked.k[None], marked.v[None]
    if not fixed.causal and row.keep is None:
        return fused_softmax(q, k, v, dropout=dropout)
    allowed = torch.ones_like(marked.places, dtype=torch.bool)[None]
    if fixed.causal:
        positions = torch.arange(part.start, part.stop, device=q.device)[:, None]
        allowed = marked.places <= positions
    if row.keep is not None:
        allowed = allowed & row.keep[0, marked.places]
    mixed = fused_softmax(q, k, v, allowed, dropout=dropout)
    return mixed.where(allowed.any(-1, keepdim=True), value)


def _without_loops(
    row: Row, fixed: Fixed, dropout: float
) -> Float[Tensor, "batch heads queries dim"]:
    """The same for a whole batch and any length in one formula, for export.

    Rows are rotated so that their first real tokens are at 0. There are two blocks or more: export
    treats a size of one as a constant.
    """
    tokens, queries, size = row.k.shape[2], row.q.shape[2], fixed.size
    q, k, v = F.pad(row.q, (0, 0, tokens - queries, 0)), row.k, row.v
    keep = torch.ones_like(k[:, 0, :, 0], dtype=torch.bool) if row.keep is None else row.keep
    first = keep.int().argmax(1)
    blocks = tokens // size + 2
    after = blocks * size - tokens
    q, k, v = (
        _in_blocks(F.pad(rolled(stream, first), (0, 0, 0, after)), size) for stream in (q, k, v)
    )
    real = F.pad(rolled(keep, first), (0, after)).unfold(1, size, size)[:, None]
    mixed = _all_blocks((q, k, v), real, fixed, dropout).flatten(2, 3)
    mixed = mixed.index_select(2, torch.arange(tokens, device=q.device))
    mixed = rolled(mixed, tokens - first)
    return mixed.index_select(2, torch.arange(tokens - queries, tokens, device=q.device))


def _all_blocks(
    streams: tuple[Tensor, Tensor, Tensor], real: Tensor, fixed: Fixed, dropout: float
) -> Float[Tensor, "batch heads blocks size dim"]:
    """Every block against its own tokens and all summaries, masked."""
    q, k, v = streams
    blocks, size = q.shape[2], fixed.size
    order = torch.arange(size, device=q.device)
    number = torch.arange(blocks, device=q.device)
    keys: list[Tensor] = []
    values: list[Tensor] = []
    allowed: list[Tensor] = []
    if fixed.others:
        tail = slice(size - fixed.summary, size)
        for stream, parts in ((k, keys), (v, values)):
            seen = stream[:, :, :, tail].flatten(2, 3)
            parts.append(seen.unsqueeze(2).expand(-1, -1, blocks, -1, -1))
        places = (number[:, None] * size + order[tail]).flatten()
        positions = (number[:, None] * size + order)[..., None]
        within = places // size == number[:, None, None]
        seen = places <= positions if fixed.causal else places >= 0 * positions
        seen = seen & ~within if fixed.own_block else seen
        allowed.append(seen & real[..., tail].flatten(2, 3)[:, :, None, None])
    if fixed.own_block:
        keys.append(k)
        values.append(v)
        near = order <= order[:, None] if fixed.causal else order >= 0 * order[:, None]
        allowed.append((near & real.unsqueeze(3)).expand(-1, -1, -1, size, -1))
    shown = torch.cat(allowed, -1)
    mixed = fused_softmax(q, torch.cat(keys, 3), torch.cat(values, 3), shown, dropout=dropout)
    return mixed.where(shown.any(-1, keepdim=True), v)


def _in_blocks(stream: Tensor, size: int) -> Tensor:
    """(..., tokens, dim) as (..., blocks, size, dim): a view."""
    return stream.unfold(-2, size, size).mT
