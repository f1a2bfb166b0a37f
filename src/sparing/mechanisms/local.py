"""Blockwise attention: inside blocks, to the blocks beside them, or to other blocks by head."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from itertools import groupby, pairwise

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sparing.core.errors import UsageError
from sparing.core.heads import Heads
from sparing.core.mask import Mask
from sparing.core.mechanism import Mechanism
from sparing.core.tracing import is_traced
from sparing.core.traits import Traits
from sparing.core.workload import Cost, Workload
from sparing.mechanisms._blocks import AT_ONCE, Band, Piece
from sparing.mechanisms._pieces import Row, at_once, mix_pieces, row_by_row
from sparing.mechanisms.shared.arithmetic import biased_softmax, fused_softmax
from sparing.mechanisms.shared.bands.gathered import Chosen, gathered, unblocked
from sparing.mechanisms.shared.bands.windows import Aligned, Windows, numbers, windowed

_EVERYWHERE = 2**62


class Local(Mechanism):
    """The tokens of a block attend to those of one block, or of some blocks next to each other.

    Formula: out_i = sum_j w_ij v_j with w_ij = softmax of q_i . k_j / sqrt(dim) over the keys j of
    the blocks I - look_back to I + look_ahead, I = floor(i / block) being the block of i; with
    ``shifts``, of the block (I + s_h) mod blocks instead. Causal: only over the j <= i of these.

    Symbols: blocks of ``block`` tokens are counted from each row's own first token, and ``blocks``
    is the number of the row's own blocks, the last one shorter; h is the head and s_h its entry in
    ``shifts``, which is repeated as often as there are heads. (0,) keeps every head in its block,
    (0, 0, 0, 0, 0, 1) sends each sixth head to the next one. ``dropout`` is the share of weights
    dropped while training.

    Cost: 4 dim block (look_back + 1 + look_ahead) flops for each query; linear in the tokens. With
    block >= tokens it equals ``softmax``.

    Source: blocks as in the Long Range Arena, Tay et al., 2020, arXiv 2011.04006; permuted blocks
    by head, Qiu et al., 2019, arXiv 1911.02972, section 3 (their 10:2 heads are ten zeros and two
    ones). What differs: any length, and blocks that follow each row's own tokens instead of its
    pads. The paper gives the number of blocks, here their size is fixed, so the cost stays linear.
    A head that looks only at another block cannot be causal: its first block would see nothing.
    On accelerators rows with pads are first moved to begin with a real token.
    """

    traits = Traits(
        paper="Blockwise Self-Attention for Long Document Understanding, arXiv 1911.02972",
        year=2019,
        family="sparse",
        arm=True,
        causal=True,
    )
    accelerated = ("accelerator",)
    takes_bias = True

    def __init__(
        self,
        heads: Heads,
        *,
        block: int = 128,
        look_back: int = 0,
        look_ahead: int = 0,
        shifts: Sequence[int] = (0,),
        dropout: float = 0.0,
    ) -> None:
        super().__init__(heads)
        self.block = block
        self.look_back = look_back
        self.look_ahead = look_ahead
        self.shifts = tuple(shifts)
        self.dropout = dropout
        self._check_options()
        self._shifted = any(self.shifts)
        self.traits = dataclasses.replace(type(self).traits, causal=not self._shifted)

    def mix(
        self,
        q: Float[Tensor, "batch heads queries dim"],
        k: Float[Tensor, "batch heads keys dim"],
        v: Float[Tensor, "batch heads keys dim"],
        *,
        mask: Mask,
    ) -> Float[Tensor, "batch heads queries dim"]:
        """Each row cropped to its own tokens and cut into blocks: views, one call for most."""
        if is_traced():
            return self._without_loops(q, k, v, mask)
        return self._by_row(Row(q, k, v, mask.keep), mask.causal)

    def mix_biased(  # type: ignore[override]  # the streams, by name
        self,
        q: Float[Tensor, "batch heads queries dim"],
        k: Float[Tensor, "batch heads keys dim"],
        v: Float[Tensor, "batch heads keys dim"],
        *,
        bias: Float[Tensor, "#batch heads queries keys"],
        mask: Mask,
    ) -> Float[Tensor, "batch heads queries dim"]:
        """The same blocks, of the bias too; a graph that is recorded has one masked square."""
        if not is_traced():
            return self._by_row(Row(q, k, v, mask.keep, bias=bias), mask.causal)
        seen = self._seen(mask, q.shape[2], k.shape[2], q.device)
        dropout = self.dropout if self.training else 0.0
        return biased_softmax(q, k, v, bias, seen, dropout=dropout)

    def _by_row(self, rows: Row, causal: bool) -> Float[Tensor, "batch heads queries dim"]:
        dropout = self.dropout if self.training else 0.0
        band = Band(_EVERYWHERE, 0 if causal else _EVERYWHERE)

        def mix_row(row: Row, out: Tensor | None) -> Tensor:
            if self._shifted:
                return self._mix_shifted(row, out, band, dropout)
            pieces = self._looking(row.q.shape[2], row.k.shape[2], causal)
            return mix_pieces(row, pieces, band, dropout, out)

        return row_by_row(mix_row, rows, alike=self._cuts_alike(rows))

    def mix_accelerator(  # type: ignore[override]  # the streams, by name
        self,
        q: Float[Tensor, "batch heads queries dim"],
        k: Float[Tensor, "batch heads keys dim"],
        v: Float[Tensor, "batch heads keys dim"],
        *,
        mask: Mask,
    ) -> Float[Tensor, "batch heads queries dim"]:
        """All blocks in one call; rows with pads are first moved to begin with a real token."""
        dropout = self.dropout if self.training else 0.0
        rows = Aligned.of(q, k, v, mask.keep)
        streams = rows.q, rows.k, rows.v, rows.real
        if self._shifted:
            mixed = gathered(*streams, self._other_blocks(rows), dropout)
            return rows.back(unblocked(mixed, k.shape[2], rows.q.shape[2]))
        size, ahead = min(self.block, k.shape[2]), 0 if mask.causal else self.look_ahead
        before, after = self.look_back * size, ahead * size
        if size < before + size + after >= k.shape[2]:
            seen = self._square(rows, mask.causal)
            return rows.back(fused_softmax(*streams[:3], seen, dropout=dropout))
        inside = None
        if mask.causal and (before or rows.real is not None):
            inside = torch.ones(size, before + size, dtype=torch.bool, device=q.device).tril(before)
        windows = Windows(size, before, after, inside, past=mask.causal and before == 0)
        return rows.back(windowed(*streams, windows, dropout))

    def _square(self, rows: Aligned, causal: bool) -> Bool[Tensor, "#batch 1 queries keys"]:
        """The keys that each query sees, for rows no longer than a window."""
        keys = rows.k.shape[2]
        order = torch.arange(keys, device=rows.k.device)
        ahead = order // self.block - order[keys - rows.q.shape[2] :, None] // self.block
        seen = (ahead >= -self.look_back) & (ahead <= self.look_ahead)
        if causal:
            seen = seen.tril(keys - rows.q.shape[2])
        return (seen if rows.real is None else seen & rows.real.unsqueeze(1))[None].view(
            -1, 1, *seen.shape
        )

    def _other_blocks(self, rows: Aligned) -> Chosen:
        """The block that each head looks at; a row with pads has as many blocks as it needs."""
        keys, device = rows.k.shape[2], rows.k.device
        size = min(self.block, keys)
        blocks = torch.arange(-(-keys // size), device=device).view(1, 1, -1, 1)
        shift = numbers(self._shift_of_heads(), device).view(1, -1, 1, 1)
        if rows.real is None:
            return Chosen(size, (blocks + shift) % blocks.shape[2], complete=True)
        of_row = (Mask(rows.real).span() + size - 1) // size
        return Chosen(size, (blocks + shift) % of_row.clamp(min=1).view(-1, 1, 1, 1))

    def _seen(
        self, mask: Mask, queries: int, keys: int, device: torch.device
    ) -> Bool[Tensor, "#batch #heads queries keys"]:
        """The pairs of each head as a square, blocks counted from each row's first token."""
        keep, order = mask.keep, torch.arange(keys, device=device)
        first = 0 if keep is None else mask.first().view(-1, 1, 1, 1)
        of_key = torch.div(order - first, self.block, rounding_mode="floor").view(-1, 1, 1, keys)
        of_query = of_key[..., keys - queries :].mT
        if self._shifted:
            span = keys if keep is None else mask.span().clamp(min=1).view(-1, 1, 1, 1)
            shift = numbers(self._shift_of_heads(), device).view(1, -1, 1, 1)
            seen = of_key == (of_query + shift) % ((span + self.block - 1) // self.block)
        else:
            seen = (of_key >= of_query - self.look_back) & (of_key <= of_query + self.look_ahead)
        allowed = mask.dense(queries, keys, device)
        return seen if allowed is None else seen & allowed

    def cost(self, work: Workload) -> Cost:
        """Two products over the pairs in the blocks; one small piece is stored besides."""
        if self._shifted:
            shifts = self._shift_of_heads()
            plans = [_shifted(work.keys, self.block, shift) for shift in shifts]
        else:
            plans = [self._looking(work.queries, work.keys, work.causal)] * work.heads
        pairs = work.batch * sum(piece.pairs() for pieces in plans for piece in pieces)
        whole = all(len(pieces) == 1 for pieces in plans)
        held = 0 if whole else work.heads * min(work.queries, max(AT_ONCE, self.block))
        return Cost(
            matmul_flops=4 * pairs * work.dim,
            other_flops=5 * pairs,
            peak_bytes=(work.rows * work.queries + held) * work.dim * work.element_bytes,
        )

    def _check_options(self) -> None:
        if self.block < 1:
            raise UsageError(f"local: block must be at least 1; got {self.block}")
        for name in ("look_back", "look_ahead"):
            if getattr(self, name) < 0:
                raise UsageError(f"local: {name} must not be negative; got {getattr(self, name)}")
        if not self.shifts or any(not isinstance(s, int) or s < 0 for s in self.shifts):
            raise UsageError(
                "local: shifts must be whole numbers from 0, one or more of them; got "
                f"{self.shifts!r}"
            )
        if len(self.shifts) > self.heads.count:
            raise UsageError(
                f"local: {len(self.shifts)} shifts, but there are just {self.heads.count} heads"
            )
        if any(self.shifts) and (self.look_back or self.look_ahead):
            raise UsageError("local: look_back and look_ahead must be 0 where shifts are given")

    def _cuts_alike(self, rows: Row) -> bool:
        """Whether blocks are the same in all rows; pads are read only where that matters."""
        if rows.keep is None or self._shifted:
            return rows.keep is None
        return at_once(rows) and bool(rows.keep[:, 0].all())

    def _shift_of_heads(self) -> list[int]:
        return [self.shifts[head % len(self.shifts)] for head in range(self.heads.count)]

    def _mix_shifted(self, row: Row, out: Tensor | None, band: Band, dropout: float) -> Tensor:
        """Adjacent heads that look at the same block run together."""
        tokens = row.q.shape[2]
        blocks = -(-tokens // self.block)
        out = row.room() if out is None else out
        mixed, head = [], 0
        for shift, group in groupby(shift % blocks for shift in self._shift_of_heads()):
            stop = head + len(list(group))
            group_out = None if out is None else out[:, head:stop]
            pieces = _shifted(tokens, self.block, shift)
            mixed.append(mix_pieces(row.heads(head, stop), pieces, band, dropout, group_out))
            head = stop
        return torch.cat(mixed, 1) if out is None else out

    def _looking(self, queries: int, keys: int, causal: bool) -> list[Piece]:
        """All blocks with a whole window in one piece, and each of the others alone."""
        block, offset = self.block, keys - queries
        ahead = 0 if causal else self.look_ahead
        start, stop = max(-(-offset // block), self.look_back), keys // block - ahead
        last = -(-keys // block)

        def piece(first: int, end: int) -> Piece:
            rows = (max(first * block, offset) - offset, min(end * block, keys) - offset)
            reach = (max(0, first - self.look_back) * block, min((end + ahead) * block, keys))
            return Piece(*rows, *reach, end - first)

        if stop <= start:
            return [
                piece(block_index, block_index + 1) for block_index in range(offset // block, last)
            ]
        before = [
            piece(block_index, block_index + 1) for block_index in range(offset // block, start)
        ]
        behind = [piece(block_index, block_index + 1) for block_index in range(stop, last)]
        return [*before, piece(start, stop), *behind]

    def _without_loops(
        self,
        q: Float[Tensor, "batch heads queries dim"],
        k: Float[Tensor, "batch heads keys dim"],
        v: Float[Tensor, "batch heads keys dim"],
        mask: Mask,
    ) -> Float[Tensor, "batch heads queries dim"]:
        """The same for any length in one formula, for export: blocks are gathered."""
        batch, heads, keys = q.shape[0], q.shape[1], k.shape[2]
        block, offset = self.block, keys - q.shape[2]
        keep = torch.ones_like(k[:, 0, :, 0], dtype=torch.bool) if mask.keep is None else mask.keep
        first, span = (part.view(-1, 1, 1, 1) for part in (Mask(keep).first(), Mask(keep).span()))
        # Two blocks or more: export treats a size of one as a constant.
        numbers = torch.arange(keys // block + 2, device=q.device).view(1, 1, -1, 1)
        inner = torch.arange(block, device=q.device)
        rows = numbers * block + inner
        shift = torch.tensor(self._shift_of_heads(), device=q.device).view(1, -1, 1, 1)
        ahead = 0 if mask.causal else self.look_ahead
        width = (self.look_back + 1 + ahead) * block
        columns = (numbers - self.look_back) * block + torch.arange(width, device=q.device)
        if self._shifted:
            blocks = ((span + block - 1) // block).clamp(min=1)
            columns = (numbers + shift) % blocks * block + inner
        allowed = ((columns >= 0) & (columns < span)).unsqueeze(3)
        if mask.causal:
            allowed = allowed & (columns.unsqueeze(3) <= rows.unsqueeze(4))
        columns = (columns + first).clamp(0, keys - 1).expand(batch, heads, -1, -1)
        real = keep.unsqueeze(1).expand(-1, heads, -1)
        allowed = allowed & _taken(real.unsqueeze(3), columns).mT
        queries = (rows + first - offset).clamp(0, q.shape[2] - 1).expand(batch, heads, -1, -1)
        mixed = fused_softmax(
            _taken(q, queries),
            _taken(k, columns),
            _taken(v, columns),
            allowed,
            dropout=self.dropout if self.training else 0.0,
        )
        back = torch.arange(q.shape[2], device=q.device).view(1, 1, -1, 1) + offset - first
        back = back.clamp(min=0).expand(-1, heads, -1, q.shape[3])
        return mixed.flatten(2, 3).gather(2, back)


def _shifted(tokens: int, block: int, shift: int) -> list[Piece]:
    """Block i against block i + shift, cyclically; the last block may be shorter."""
    blocks, full = -(-tokens // block), tokens // block
    shift %= blocks
    borders = {0, blocks - shift, blocks}
    if full < blocks:  # it runs alone, and so does the block that looks at it
        looking = (full - shift) % blocks
        borders |= {full, looking, looking + 1}
    cuts = sorted(borders)
    pieces = []
    for first, end in pairwise(cuts):
        other = (first + shift) % blocks
        rows = (first * block, min(end * block, tokens))
        reach = (other * block, min((other + end - first) * block, tokens))
        pieces.append(Piece(*rows, *reach, end - first))
    return pieces


def _taken(
    stream: Float[Tensor, "batch heads tokens dim"], index: Int[Tensor, "batch heads blocks size"]
) -> Float[Tensor, "batch heads blocks size dim"]:
    """The tokens at an index of each row and head."""
    batch, heads = (torch.arange(size, device=index.device) for size in stream.shape[:2])
    return stream[batch.view(-1, 1, 1, 1), heads.view(1, -1, 1, 1), index]
