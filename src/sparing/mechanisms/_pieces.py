"""A row of attention in pieces, each of them one call of a fused kernel on views of the row."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from sparing.mechanisms.shared.arithmetic import wide

AT_ONCE = 512
"""Tokens in a piece where results are copied together: those stay in cache."""


@dataclass(frozen=True)
class Band:
    """Which keys a query sees: from ``before`` tokens behind it up to ``after`` tokens ahead.

    ``block`` is the number of queries that share a window of keys.
    """

    before: int
    after: int
    block: int = 32


@dataclass(frozen=True)
class Piece:
    """Queries ``start`` to ``stop`` with the keys that any of them may see.

    With ``blocks`` above one it is that many equal blocks, each with its own window of keys. The
    windows overlap and together reach from ``key_start`` to ``key_stop``.
    """

    start: int
    stop: int
    key_start: int
    key_stop: int
    blocks: int = 1

    @property
    def size(self) -> int:
        """Queries in a block."""
        return (self.stop - self.start) // self.blocks

    @property
    def window(self) -> int:
        """Keys that a block sees: each window starts a block after the one before it."""
        return self.key_stop - self.key_start - (self.blocks - 1) * self.size

    def pairs(self) -> int:
        """Scores that are computed for one head, masked ones included."""
        return (self.stop - self.start) * self.window

    def split(self) -> list[Piece]:
        """The same in pieces of about ``AT_ONCE`` queries, or of one block."""
        size, window = self.size, self.window
        step = max(1, AT_ONCE // size)
        parts = []
        for first in range(0, self.blocks, step):
            last = min(first + step, self.blocks)
            start, key_start = self.start + first * size, self.key_start + first * size
            reach = (key_start, key_start + (last - first - 1) * size + window)
            parts.append(Piece(start, self.start + last * size, *reach, last - first))
        return parts


@dataclass(frozen=True)
class Columns:
    """A few keys that queries see beside their band, (batch, heads, columns, dim), and a mask.

    ``seen`` (batch, 1, queries, columns) marks the queries that see them. No key may be both here
    and in the query's band.
    """

    k: Tensor
    v: Tensor
    seen: Tensor

    def sample(self, index: int) -> Columns:
        """Those of one row of the batch."""
        part = slice(index, index + 1)
        return Columns(self.k[part], self.v[part], self.seen[part])

    def rows(self, start: int, stop: int) -> Columns:
        """The same for some queries."""
        return replace(self, seen=self.seen[:, :, start:stop])


@dataclass(frozen=True)
class Row:
    """The streams to mix, the mask of kept keys, and the columns beside the band.

    Without columns there may be a ``bias`` (batch or 1, heads, queries, keys) for the scores.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    keep: Tensor | None = None
    columns: Columns | None = None
    bias: Tensor | None = None

    @property
    def recorded(self) -> bool:
        """Whether gradients are recorded, so results must not be written in place."""
        read = (self.q, self.k, self.v, self.q if self.bias is None else self.bias)
        return torch.is_grad_enabled() and any(t.requires_grad for t in read)

    def room(self) -> Float[Tensor, "batch heads queries dim"] | None:
        """An empty output, tokens outermost as in the kernels; None if gradients are recorded."""
        if self.recorded:
            return None
        batch, heads, queries, dim = self.q.shape
        return self.q.new_empty(batch, queries, heads, dim).transpose(1, 2)

    def sample(self, index: int) -> Row:
        """One row of the batch."""
        part = slice(index, index + 1)
        keep = None if self.keep is None else self.keep[part]
        columns = None if self.columns is None else self.columns.sample(index)
        bias = self.bias
        bias = bias if bias is None or len(bias) == 1 else bias[part]
        return Row(self.q[part], self.k[part], self.v[part], keep, columns, bias)

    def heads(self, start: int, stop: int) -> Row:
        """The same for some heads, where there are no columns."""
        q, k, v = (part[:, start:stop] for part in (self.q, self.k, self.v))
        bias = None if self.bias is None else self.bias[:, start:stop]
        return Row(q, k, v, self.keep, bias=bias)

    def cropped(self) -> tuple[Row, int]:
        """A single row from its first to its last real token, and its first query there."""
        assert self.keep is not None
        real = self.keep[0].nonzero()
        queries, keys = self.q.shape[2], self.k.shape[2]
        if len(real) == keys:
            return replace(self, keep=None), 0
        first, stop = (int(real[0]), int(real[-1]) + 1) if len(real) else (0, 0)
        start, end = (max(0, key - (keys - queries)) for key in (first, stop))
        keep = None if len(real) == stop - first else self.keep[:, first:stop]
        q, k, v = self.q[:, :, start:end], self.k[:, :, first:stop], self.v[:, :, first:stop]
        columns = None if self.columns is None else self.columns.rows(start, end)
        bias = None if self.bias is None else self.bias[:, :, start:end, first:stop]
        return Row(q, k, v, keep, columns, bias), start


MixRow = Callable[[Row, Tensor | None], Tensor]
"""Mixes a row, into the second argument if it is given, and returns the result."""


def at_once(rows: Row) -> bool:
    """Whether a batch goes through the kernels together, pads included: not on CPU.

    On other devices launching many small kernels takes longer than running them.
    """
    return rows.q.device.type != "cpu"


def row_by_row(
    mix: MixRow, rows: Row, *, alike: bool = False
) -> Float[Tensor, "batch heads queries dim"]:
    """Mix the rows of a batch one by one, each cropped to its own tokens; zeros outside.

    Or all together with their pads (any finite value there), where that is faster and the rows are
    ``alike``: cut into the same pieces, wherever their tokens begin and end.
    """
    batch, queries = rows.q.shape[0], rows.q.shape[2]
    if (batch == 1 and rows.keep is None) or (alike and at_once(rows)):
        return mix(rows, None)
    out, mixed = rows.room(), []
    for index in range(batch):
        row, start = rows.sample(index), 0
        if row.keep is not None:
            row, start = row.cropped()
        end = start + row.q.shape[2]
        if out is not None:
            result = out[index : index + 1]
            result[:, :, :start] = result[:, :, end:] = 0
            if start < end:
                mix(row, result[:, :, start:end])
        elif start == end:
            mixed.append(torch.zeros_like(rows.q[:1]))
        else:
            mixed.append(F.pad(mix(row, None), (0, 0, start, queries - end)))
    return torch.cat(mixed) if out is None else out


def mix_pieces(
    row: Row, pieces: list[Piece], band: Band, dropout: float = 0.0, out: Tensor | None = None
) -> Float[Tensor, "batch heads queries dim"]:
    """A row's pieces in order, covering all queries, each masked by the band.

    Where there are several, all results but one small one are already in the output.
    """
    if out is None and len(pieces) == 1:
        return _mix_piece(row, pieces[0], band, dropout)
    out = row.room() if out is None else out
    if out is None:
        return torch.cat([_mix_piece(row, piece, band, dropout) for piece in pieces], 2)
    for piece in pieces:
        for part in piece.split() if row.q.device.type == "cpu" else [piece]:
            _mix_piece(row, part, band, dropout, out[:, :, part.start : part.stop])
    return out


def _mix_piece(
    row: Row, piece: Piece, band: Band, dropout: float, out: Tensor | None = None
) -> Tensor:
    """One piece, as views of the streams; written to ``out`` where that is given."""
    rows, reach = slice(piece.start, piece.stop), slice(piece.key_start, piece.key_stop)
    q = row.q[:, :, rows]
    k, v = (_in_windows(keys[:, :, reach], piece) for keys in (row.k, row.v))
    blocks = _in_blocks(q, piece)
    shift = piece.key_start - piece.start - (row.k.shape[2] - row.q.shape[2])
    plain = row.keep is None and row.columns is None and row.bias is None
    causal = plain and _is_causal(band, piece, shift)
    keep = None if row.keep is None else row.keep[:, reach]
    allowed = None if causal else _allowed(band, piece, shift, keep, q.device)
    if row.bias is not None:
        allowed = _biases(row.bias.expand(len(q), -1, -1, -1), piece, allowed)
    if row.columns is None:
        mixed = F.scaled_dot_product_attention(blocks, k, v, allowed, dropout, causal)
        return _joined(mixed, piece, len(q), out)
    columns = row.columns.rows(piece.start, piece.stop)
    if not _can_merge(row, dropout):
        mixed = _beside(blocks, k, v, allowed, columns, piece, dropout)
        return _joined(mixed, piece, len(q), out)
    bias = None if allowed is None else q.new_zeros(()).masked_fill(~allowed, -torch.inf)
    mixed, totals = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        blocks, k, v, attn_mask=bias
    )
    mixed = _joined(mixed, piece, len(q), out)
    totals = _joined(totals.unsqueeze(3), piece, len(q))
    return _merged(q, mixed, totals, columns)


def _biases(bias: Tensor, piece: Piece, allowed: Tensor | None) -> Tensor:
    """The bias of the pairs of each block, folded as its keys; -inf where a key is not seen."""
    part = bias[:, :, piece.start : piece.stop, piece.key_start : piece.key_stop]
    rows = part.reshape(*part.shape[:2], piece.blocks, piece.size, part.shape[3])
    windows = rows.unfold(4, piece.window, piece.size)  # of all blocks for the queries of each
    biases = _folded(windows.diagonal(dim1=2, dim2=4).movedim(-1, 2), piece)
    return biases if allowed is None else biases.masked_fill(~allowed, -torch.inf)


def _in_blocks(rows: Tensor, piece: Piece) -> Tensor:
    """Queries, or values per query, with a dimension for the blocks."""
    return _folded(_split(rows, piece), piece)


def _in_windows(keys: Tensor, piece: Piece) -> Tensor:
    """Keys or values in the windows of the blocks: overlapping views, nothing is copied."""
    return _folded(keys.unfold(2, piece.window, piece.size).mT, piece)


def _folded(blocks: Tensor, piece: Piece) -> Tensor:
    """Three leading dimensions, (batch, heads, blocks), reduced to the two that a kernel takes.

    For a single row a kernel iterates over the second dimension faster. If the windows of the
    blocks overlap, blocks go there, so that keys stay in the cache. Otherwise heads go there, so
    that ``_joined`` copies nothing. For more rows, blocks follow each other in the first dimension.
    """
    if piece.blocks == 1:
        return blocks[:, :, 0]
    if len(blocks) > 1:
        return blocks.transpose(1, 2).flatten(0, 1)
    return blocks[0] if piece.window > piece.size else blocks[0].transpose(0, 1)


def _joined(mixed: Tensor, piece: Piece, batch: int, out: Tensor | None = None) -> Tensor:
    """Undo ``_folded``: (batch, heads, queries, dim), in ``out`` if that is given."""
    if piece.blocks == 1:
        blocks = mixed.unsqueeze(2)
    elif batch > 1:
        blocks = mixed.view(batch, piece.blocks, *mixed.shape[1:]).transpose(1, 2)
    else:
        blocks = (mixed if piece.window > piece.size else mixed.transpose(0, 1))[None]
    if out is None:
        return blocks.flatten(2, 3)
    _split(out, piece).copy_(blocks)
    return out


def _split(rows: Tensor, piece: Piece) -> Tensor:
    """(batch, heads, blocks, queries of a block, dim), as a view."""
    batch, heads, _, dim = rows.shape
    return rows.view(batch, heads, piece.blocks, -1, dim)


def _can_merge(row: Row, dropout: float) -> bool:
    """Whether the kernel that also returns the sum of the weights (not its gradient) can run.

    On CPU too ``torch.nn.attention.sdpa_kernel`` sets the flag named after CUDA. Called by its
    name, the kernel assumes without a check that a head's numbers are contiguous.
    """
    if any(stream.stride(3) != 1 for stream in (row.q, row.k, row.v)):
        return False
    on_cpu = row.q.device.type == "cpu" and torch.backends.cuda.flash_sdp_enabled()  # type: ignore[no-untyped-call]
    return on_cpu and dropout == 0 and not row.recorded


def _merged(q: Tensor, mixed: Tensor, totals: Tensor, columns: Columns) -> Tensor:
    """Add the columns to the output of the band; ``totals`` are the logarithms of its sums.

    The few columns come before the queries: a softmax over a short last dimension is slow.
    """
    scores = (wide(columns.k) / math.sqrt(q.shape[3])) @ wide(q).mT
    scores = scores.masked_fill_(~columns.seen.mT, -torch.inf)
    shares = torch.cat([totals.mT, scores], 2).softmax(2).mT
    return mixed.mul_(shares[..., :1]).add_(shares[..., 1:] @ wide(columns.v))


def _beside(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    allowed: Tensor | None,
    columns: Columns,
    piece: Piece,
    dropout: float,
) -> Tensor:
    """The same through one softmax: the columns are put before each window."""
    own_k, own_v = (
        _folded(part.unsqueeze(2).expand(-1, -1, piece.blocks, -1, -1), piece)
        for part in (columns.k, columns.v)
    )
    seen = _in_blocks(columns.seen, piece)
    allowed = seen.new_ones(()) if allowed is None else allowed
    allowed = torch.cat([seen, allowed.expand(*seen.shape[:3], piece.window)], 3)
    k, v = torch.cat([own_k, k], 2), torch.cat([own_v, v], 2)
    return F.scaled_dot_product_attention(q, k, v, allowed, dropout)


def _is_causal(band: Band, piece: Piece, shift: int) -> bool:
    """Whether a block sees exactly the past of its own tokens: kernels skip the rest."""
    square = piece.size == piece.window and shift == 0
    return square and band.after == 0 and piece.size <= band.before + 1


def _allowed(
    band: Band, piece: Piece, shift: int, keep: Tensor | None, device: torch.device
) -> Bool[Tensor, "*#blocks #queries keys"] | None:
    """The keys of its window that a query may see; None for all. A query without any sees all."""
    allowed = None
    if piece.window - 1 + shift > band.after or piece.size - 1 - shift > band.before:
        allowed = inside(band, piece.size, piece.window, shift, device)
    if keep is None:
        return allowed
    real = _in_windows(keep[:, None, :, None], piece).mT
    allowed = real if allowed is None else real & allowed
    return allowed | ~allowed.any(-1, keepdim=True)


def inside(
    band: Band, queries: int, keys: int, shift: int, device: torch.device
) -> Bool[Tensor, "queries keys"]:
    """Whether a key is in the band of a query; key 0 is ``shift`` after query 0."""
    ahead = torch.arange(shift, shift + keys, device=device) - torch.arange(
        queries, device=device
    ).unsqueeze(1)
    return (ahead >= -band.before) & (ahead <= band.after)
