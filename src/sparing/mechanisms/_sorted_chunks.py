"""Tokens sorted by a code and cut into chunks; each chunk sees itself and the one before it."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor

from sparing.core.tracing import is_traced
from sparing.mechanisms.shared.arithmetic import stable_order


class Chunks:
    """The positions of sorted tokens in chunks, each row's own tokens first.

    ``size`` tokens make a chunk. ``positions`` (chunks, size) are those of each chunk. ``windows``
    (batch or 1, chunks, window) are those that it sees: the chunk before it, then its own. For the
    first chunk the one before is the last that holds a token of the row. ``filled`` marks the
    positions that hold a token, counting a token seen twice once; None if all do.
    """

    def __init__(
        self,
        tokens: int,
        size: int,
        keep: Bool[Tensor, "batch tokens"] | None,
        device: torch.device,
    ) -> None:
        if is_traced():
            # Export takes a size that happens to be one for a constant: there are always two.
            self.size, count = size, tokens // size + 2
        else:
            self.size = min(size, tokens)
            count = -(-tokens // self.size)
        inside = torch.arange(self.size, device=device)
        chunks = torch.arange(count, device=device)
        lengths = torch.full((1, 1), tokens, device=device)
        if keep is not None:
            lengths = keep.sum(1, keepdim=True)
        last = (lengths - 1).clamp(min=0) // self.size
        self.positions = chunks.unsqueeze(1) * self.size + inside
        self.before = (chunks - 1).where(chunks > 0, last)
        self.windows = self.positions.unsqueeze(0)
        if count > 1:
            earlier = self.before.unsqueeze(2) * self.size + inside
            self.windows = torch.cat([earlier, self.windows.expand_as(earlier)], 2)
        self.filled: Tensor | None = None
        if keep is not None or is_traced() or tokens % self.size:
            self.filled = self.windows < lengths.unsqueeze(2)
            if count > 1:
                twice = (self.before == chunks).unsqueeze(2)
                earlier_half = torch.arange(2 * self.size, device=device) < self.size
                self.filled = self.filled & ~(twice & earlier_half)


class Order:
    """Tokens by (code, position): which ones a chunk holds and sees, and the position of each.

    ``queries`` (batch, heads, chunks, size), ``keys`` (batch, heads, chunks, window) and ``places``
    (batch, heads, tokens) are token numbers, or query numbers, counted through all rows, for
    ``taken``. Where there is no token, they name another.
    """

    def __init__(self, codes: Int[Tensor, "batch heads tokens"], chunks: Chunks) -> None:
        batch, heads, tokens = codes.shape
        self.codes = codes
        self.chunks = chunks
        rows = torch.arange(batch * heads, device=codes.device).view(batch, heads, 1)
        order = stable_order(codes)
        places = torch.arange(tokens, device=codes.device).expand_as(order)
        self._places = torch.empty_like(order).scatter_(-1, order, places)
        self.places = self._places + rows * (chunks.positions.shape[0] * chunks.size)
        order = order + rows * tokens
        self.queries = order[:, :, chunks.positions.clamp(max=tokens - 1)]
        windows = chunks.windows.clamp(max=tokens - 1)
        if windows.shape[0] == 1:
            self.keys = order[:, :, windows[0]]
        else:
            self.keys = taken(order, windows.unsqueeze(1) + (rows * tokens).unsqueeze(-1))

    def at_queries(
        self, values: Int[Tensor, "batch heads tokens"]
    ) -> Int[Tensor, "batch heads chunks size 1"]:
        """The values of each token, in the order of the queries."""
        return taken(values, self.queries).unsqueeze(-1)

    def at_keys(
        self, values: Int[Tensor, "batch heads tokens"]
    ) -> Int[Tensor, "batch heads chunks 1 window"]:
        """The values of each token, in the order of the keys."""
        return taken(values, self.keys).unsqueeze(-2)

    def undone(self, parts: Shaped[Tensor, "batch heads chunks size dim"]) -> Tensor:
        """Results for the queries, back in the order of the tokens."""
        return taken(parts.flatten(2, 3), self.places)

    def meets(
        self, other: Order, *, same_code: bool
    ) -> Bool[Tensor, "batch heads chunks size window"]:
        """Which of this order's pairs of query and key meet in the other order, too."""
        chunk = other._places // self.chunks.size
        before = self.chunks.before.unsqueeze(1).expand(*chunk.shape[:2], -1).gather(-1, chunk)
        keys = self.at_keys(chunk)
        met = (keys == self.at_queries(chunk)) | (keys == self.at_queries(before))
        if same_code:
            met = met & (self.at_keys(other.codes) == self.at_queries(other.codes))
        return met


def taken(
    stream: Shaped[Tensor, "batch heads tokens *_"], index: Int[Tensor, "batch heads *_"]
) -> Tensor:
    """The tokens with these numbers, counted through all rows: the index's shape, then a token's.

    Whole rows of memory are copied, in less than half the time of indexing. Export cannot see that
    the shapes fit then, so it indexes.
    """
    rows = stream.flatten(0, 2)
    if is_traced():
        return rows[index]
    return rows.index_select(0, index.flatten()).view(*index.shape, *stream.shape[3:])
