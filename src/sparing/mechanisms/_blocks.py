"""Attention inside a band around the diagonal, in blocks: nothing square is ever built."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from sparing.mechanisms._shared import fused_softmax


@dataclass(frozen=True)
class Band:
    """Which keys a query sees: from ``before`` tokens behind it up to ``after`` tokens ahead.

    ``block`` is the number of queries that share a window of keys.
    """

    before: int
    after: int
    block: int = 32


def block_for(stream: Tensor) -> int:
    """How many queries should share a window of keys.

    32, a tile of PyTorch's CPU kernel, wastes least outside the band. With gradients each window
    of keys gets its own before they are added up: 128 keeps those from outweighing the saving.
    Kernels for other devices have larger tiles.
    """
    differentiated = torch.is_grad_enabled() and stream.requires_grad
    return 128 if differentiated or stream.device.type != "cpu" else 32


@dataclass(frozen=True)
class Piece:
    """Queries ``start`` to ``stop`` with the keys that any of them may see.

    With ``blocks`` above one it is so many equal blocks, each with its own window of keys; the
    windows overlap and together reach from ``key_start`` to ``key_stop``.
    """

    start: int
    stop: int
    key_start: int
    key_stop: int
    blocks: int = 1

    def pairs(self, band: Band) -> int:
        """Scores that are computed for one head, those that the mask hides included."""
        rows = self.stop - self.start
        if self.blocks == 1:
            return rows * (self.key_stop - self.key_start)
        return rows * (rows // self.blocks + band.before + band.after)


def plan(queries: int, keys: int, band: Band) -> list[Piece]:
    """Cut the band into pieces, in order: equal blocks inside, the two ends apart.

    The queries stand at the last of the keys' positions. A band that covers most of the square
    stays in one piece, for cutting would save nothing.
    """
    offset, block = keys - queries, band.block

    def piece(start: int, stop: int, blocks: int = 1) -> Piece:
        reach = (max(0, start + offset - band.before), min(keys, stop + offset + band.after))
        return Piece(start, stop, *reach, blocks)

    whole = piece(0, queries)
    first = -(-max(0, band.before - offset) // block)
    last = (queries - band.after) // block
    if last <= first:
        return [whole]
    start, stop = first * block, last * block
    cut = [piece(0, start), piece(start, stop, last - first), piece(stop, queries)]
    cut = [part for part in cut if part.start < part.stop]
    saved = whole.pairs(band) - sum(part.pairs(band) for part in cut)
    return cut if saved > whole.pairs(band) // 8 else [whole]


def band_attention(
    q: Float[Tensor, "batch heads queries dim"],
    k: Float[Tensor, "batch heads keys dim"],
    v: Float[Tensor, "batch heads keys dim"],
    keep: Bool[Tensor, "batch keys"] | None,
    band: Band,
    dropout: float = 0.0,
) -> Float[Tensor, "batch heads queries dim"]:
    """Exact softmax attention over the kept keys inside the band; the queries are the last ones.

    Long rows are done one by one, each cropped to its own tokens: pads cost nothing.
    """
    if torch.compiler.is_compiling():
        return _without_loops(q, k, v, keep, band, dropout)
    pieces = plan(q.shape[2], k.shape[2], band)
    if len(pieces) == 1 and pieces[0].blocks == 1:
        return _row(q, k, v, keep, band, dropout)
    streams = zip(torch.split(q, 1), torch.split(k, 1), torch.split(v, 1), strict=True)
    if keep is None:
        rows = [_row(*row, None, band, dropout) for row in streams]
    else:
        padded = zip(streams, torch.split(keep, 1), strict=True)
        rows = [_cropped(*row, real, band, dropout) for row, real in padded]
    return torch.cat(rows) if len(rows) > 1 else rows[0]


def _cropped(
    q: Tensor, k: Tensor, v: Tensor, keep: Tensor, band: Band, dropout: float
) -> Float[Tensor, "1 heads queries dim"]:
    """One row from its first to its last real token; zeros for the queries outside."""
    queries, keys = q.shape[2], k.shape[2]
    real = keep[0].nonzero()
    if len(real) == keys:
        return _row(q, k, v, None, band, dropout)
    first, stop = (int(real[0]), int(real[-1]) + 1) if len(real) else (0, 0)
    start, end = (max(0, key - (keys - queries)) for key in (first, stop))
    if start == end:
        return torch.zeros_like(q)
    inner = None if len(real) == stop - first else keep[:, first:stop]
    k, v = k[:, :, first:stop], v[:, :, first:stop]
    return F.pad(_row(q[:, :, start:end], k, v, inner, band, dropout), (0, 0, start, queries - end))


def _row(
    q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None, band: Band, dropout: float
) -> Float[Tensor, "batch heads queries dim"]:
    """Piece by piece; more than one row only where one piece is all."""
    mixed = []
    for piece in plan(q.shape[2], k.shape[2], band):
        reach = slice(piece.key_start, piece.key_stop)
        shift = piece.key_start - piece.start - (k.shape[2] - q.shape[2])
        inner = None if keep is None else keep[:, reach]
        part = (q[:, :, piece.start : piece.stop], k[:, :, reach], v[:, :, reach])
        if piece.blocks == 1:
            mixed.append(_whole(*part, inner, band, shift, dropout))
        else:
            mixed.append(_blocks(*part, inner, band, piece.blocks, dropout))
    return torch.cat(mixed, 2) if len(mixed) > 1 else mixed[0]


def _whole(
    q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None, band: Band, shift: int, dropout: float
) -> Float[Tensor, "batch heads queries dim"]:
    """All queries against all keys, masked; key 0 stands ``shift`` after query 0."""
    queries, keys = q.shape[2], k.shape[2]
    if keep is None and queries == keys and shift == 0 and band.after == 0 <= keys <= band.before:
        return fused_softmax(q, k, v, causal=True, dropout=dropout)
    allowed = None
    if keys - 1 + shift > band.after or queries - 1 - shift > band.before:
        allowed = _inside(band, queries, keys, shift, q.device)
    if keep is not None:
        real = keep[:, None, None]
        allowed = real if allowed is None else real & allowed
    return fused_softmax(q, k, v, allowed, dropout=dropout)


def _blocks(
    q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None, band: Band, blocks: int, dropout: float
) -> Float[Tensor, "1 heads queries dim"]:
    """One row's equal blocks, each against its window: overlapping views, nothing is copied."""
    size = q.shape[2] // blocks
    window = size + band.before + band.after
    allowed = _inside(band, size, window, -band.before, q.device)
    if keep is not None:
        allowed = allowed & keep[0].unfold(0, window, size)[:, None]
    parts = q[0].view(q.shape[1], blocks, size, -1)
    k, v = (part[0].unfold(1, window, size).mT for part in (k, v))
    return fused_softmax(parts, k, v, allowed, dropout=dropout).flatten(1, 2)[None]


def _inside(
    band: Band, queries: int, keys: int, shift: int, device: torch.device
) -> Bool[Tensor, "queries keys"]:
    """Whether a key lies in the band of a query; key 0 stands ``shift`` after query 0."""
    ahead = torch.arange(shift, shift + keys, device=device) - torch.arange(
        queries, device=device
    ).unsqueeze(1)
    return (ahead >= -band.before) & (ahead <= band.after)


def _without_loops(
    q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None, band: Band, dropout: float
) -> Float[Tensor, "batch heads queries dim"]:
    """The same for any length in one formula, for export: windows are gathered, the ends masked.

    There are always two blocks or more: export takes a size that happens to be one for a constant,
    and it cannot prove that a slice fits, so that the queries are taken by index in the end too.
    """
    queries, keys, size = q.shape[2], k.shape[2], band.block
    blocks = queries // size + 2
    window = size + band.before + band.after
    starts = torch.arange(blocks, device=q.device).unsqueeze(1) * size
    rows = (starts + torch.arange(size, device=q.device)).clamp(max=queries - 1)
    columns = starts + torch.arange(window, device=q.device) + (keys - queries - band.before)
    allowed = ((columns >= 0) & (columns < keys)).unsqueeze(1)
    allowed = allowed & _inside(band, size, window, -band.before, q.device)
    columns = columns.clamp(0, keys - 1)
    if keep is not None:
        allowed = keep[:, columns].unsqueeze(2).unsqueeze(1) & allowed
    mixed = fused_softmax(
        q[:, :, rows], k[:, :, columns], v[:, :, columns], allowed, dropout=dropout
    )
    return mixed.flatten(2, 3)[:, :, torch.arange(queries, device=q.device)]
