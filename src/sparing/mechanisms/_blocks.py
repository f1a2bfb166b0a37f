"""Attention inside a band around the diagonal, in blocks: no square is ever built."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from sparing.core.tracing import is_traced
from sparing.mechanisms._pieces import (
    AT_ONCE,
    Band,
    Columns,
    Piece,
    Row,
    inside,
    mix_pieces,
    row_by_row,
)
from sparing.mechanisms.shared.arithmetic import fused_softmax

__all__ = ["AT_ONCE", "Band", "Columns", "Piece", "band_attention", "block_for", "plan"]


_STEP = 64
"""Queries that run together where an end of the row cuts the windows off."""


def block_for(stream: Tensor) -> int:
    """How many queries share a window of keys.

    32, a tile of PyTorch's CPU kernel, wastes least outside the band. With gradients each window
    has gradients of its own before they are added up: 128 limits that memory. Kernels for other
    devices have larger tiles.
    """
    differentiated = torch.is_grad_enabled() and stream.requires_grad
    return 128 if differentiated or stream.device.type != "cpu" else 32


def plan(queries: int, keys: int, band: Band) -> list[Piece]:
    """Cut the band into pieces, in order: equal blocks inside, the two ends in short steps.

    The queries are at the last positions of the keys. A band that covers most of the square stays
    in one piece, since cutting saves nothing.
    """
    offset, block = keys - queries, band.block

    def piece(start: int, stop: int, blocks: int = 1) -> Piece:
        reach = (max(0, start + offset - band.before), min(keys, stop + offset + band.after))
        return Piece(start, stop, *reach, blocks)

    def steps(start: int, stop: int) -> list[Piece]:
        size = max(block, _STEP)
        return [piece(at, min(at + size, stop)) for at in range(start, stop, size)]

    whole = piece(0, queries)
    first = -(-max(0, band.before - offset) // block)
    last = (queries - band.after) // block
    if last <= first:
        return [whole]
    start, stop = first * block, last * block
    cut = [*steps(0, start), piece(start, stop, last - first), *steps(stop, queries)]
    saved = whole.pairs() - sum(part.pairs() for part in cut)
    return cut if saved > whole.pairs() // 8 else [whole]


def band_attention(
    q: Float[Tensor, "batch heads queries dim"],
    k: Float[Tensor, "batch heads keys dim"],
    v: Float[Tensor, "batch heads keys dim"],
    keep: Bool[Tensor, "batch keys"] | None,
    band: Band,
    dropout: float = 0.0,
    columns: Columns | None = None,
    bias: Float[Tensor, "#batch heads queries keys"] | None = None,
) -> Float[Tensor, "batch heads queries dim"]:
    """Exact softmax attention over the kept keys in the band and the extra columns.

    ``bias`` is added to the scores, where there are no columns and no graph is recorded. The
    queries are the last tokens. On CPU long rows run one by one, each cropped to its own
    tokens: pads cost nothing.
    """
    row = Row(q, k, v, keep, columns, bias)
    if is_traced():
        return _without_loops(row, band, dropout)
    pieces = plan(q.shape[2], k.shape[2], band)
    if len(pieces) == 1 and pieces[0].blocks == 1:
        return mix_pieces(row, pieces, band, dropout)

    def mix(row_part: Row, out: Tensor | None) -> Tensor:
        return mix_pieces(
            row_part, plan(row_part.q.shape[2], row_part.k.shape[2], band), band, dropout, out
        )

    return row_by_row(mix, row, alike=True)


def _without_loops(row: Row, band: Band, dropout: float) -> Float[Tensor, "batch heads q dim"]:
    """The same for any length in one formula, for export: windows are gathered, the ends masked.

    There are always two blocks or more: export treats a size of one as a constant. Export cannot
    prove that a slice fits, so the queries are selected by index at the end.
    """
    q, k, v = row.q, row.k, row.v
    queries, keys, size = q.shape[2], k.shape[2], band.block
    blocks = queries // size + 2
    window = size + band.before + band.after
    starts = torch.arange(blocks, device=q.device).unsqueeze(1) * size
    rows = (starts + torch.arange(size, device=q.device)).clamp(max=queries - 1)
    places = starts + torch.arange(window, device=q.device) + (keys - queries - band.before)
    allowed = ((places >= 0) & (places < keys)).unsqueeze(1)
    allowed = allowed & inside(band, size, window, -band.before, q.device)
    places = places.clamp(0, keys - 1)
    if row.keep is not None:
        allowed = row.keep[:, places].unsqueeze(2).unsqueeze(1) & allowed
    k, v = k[:, :, places], v[:, :, places]
    if row.columns is not None:
        columns = row.columns
        k, v = (
            torch.cat([column.unsqueeze(2).expand(-1, -1, blocks, -1, -1), part], 3)
            for column, part in ((columns.k, k), (columns.v, v))
        )
        seen = columns.seen[:, :, rows]
        allowed = torch.cat([seen, allowed.expand(*seen.shape[:-1], window)], -1)
    mixed = fused_softmax(q[:, :, rows], k, v, allowed, dropout=dropout)
    return mixed.flatten(2, 3)[:, :, torch.arange(queries, device=q.device)]
