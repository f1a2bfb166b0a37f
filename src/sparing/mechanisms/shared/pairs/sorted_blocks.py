"""Tokens in several orders at once, in blocks that see themselves and the block before."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor


@dataclass(frozen=True)
class SortedBlocks:
    """Every row's tokens in each of its orders, one order behind the other.

    ``tokens`` (batch, heads, orders, length) are token numbers; an order has its last block in
    front of its first one, again. So block b sees the window that starts a block earlier, and all
    windows of all rows are one view. A window from one order into the next is computed, not used.

    ``size`` is that of a block. ``filled`` (batch or 1, length) marks what holds a token (None:
    all), and ``last`` is each row's last block. ``places`` (batch, heads, orders, tokens) says
    where a token is among the queries of all windows.
    """

    size: int
    tokens: Tensor
    places: Tensor
    filled: Bool[Tensor, "#batch length"] | None
    last: int | Tensor

    def sorted(self, stream: Shaped[Tensor, "batch heads tokens dim"]) -> Shaped[Tensor, "all dim"]:
        """A stream in all orders."""
        orders, dim = self.tokens.shape[2], stream.shape[3]
        index = self.tokens.unsqueeze(-1).expand(-1, -1, -1, -1, dim)
        rows = stream.unsqueeze(2).expand(-1, -1, orders, -1, -1)
        return rows.gather(3, index).flatten(0, 3)

    def queries(self, rows: Shaped[Tensor, "all dim"]) -> Shaped[Tensor, "windows size dim"]:
        """The block of each window that is its own."""
        return rows.view(-1, self.size, rows.shape[1])[1:]

    def windows(self, rows: Shaped[Tensor, "all dim"]) -> Shaped[Tensor, "windows dim window"]:
        """Each block with the one before it, in front: a view."""
        return rows.unfold(0, 2 * self.size, self.size)

    def shown(self) -> Bool[Tensor, "windows 1 window"] | None:
        """What of a window holds a token, counting a token seen twice once."""
        if self.filled is None:
            return None
        rows = self.filled[:, None, None].expand(*self.tokens.shape).flatten()
        return self.windows(rows.unsqueeze(1))

    def undone(self, results: Shaped[Tensor, "windows size dim"]) -> Tensor:
        """Results of the queries for each token: (batch, heads, orders, tokens, dim)."""
        rows = results.flatten(0, 1).index_select(0, self.places.flatten())
        return rows.view(*self.places.shape, -1)

    def of_orders(self, values: Int[Tensor, "batch heads orders tokens"]) -> Tensor:
        """Whether query and key agree in a number that each token has in each order."""
        rows = values.gather(3, self.tokens).flatten().unsqueeze(1)
        return self.queries(rows) == self.windows(rows)

    def meetings(
        self, order: int, codes: Int[Tensor, "batch heads tokens"] | None
    ) -> Bool[Tensor, "windows size window"]:
        """Which pairs of query and key meet in an order, too; with equal codes, if given."""
        length = self.tokens.shape[3]
        block = self.places[:, :, order : order + 1] % length // self.size
        before = (block - 1).where(block > 0, self.last)
        block, before = (self.sorted(part.mT) for part in (block, before))
        keys = self.windows(block)
        met = (self.queries(block) == keys) | (self.queries(before) == keys)
        if codes is not None:
            rows = self.sorted(codes.unsqueeze(-1))
            met = met & (self.queries(rows) == self.windows(rows))
        return met


def sorted_blocks(
    codes: Int[Tensor, "batch heads orders tokens"],
    size: int,
    keep: Bool[Tensor, "batch tokens"] | None,
) -> SortedBlocks:
    """Tokens by (code, position); where ``keep`` has pads, their codes are the largest."""
    tokens, device = codes.shape[3], codes.device
    size = min(size, tokens)
    count = -(-tokens // size)
    order = codes.sort(dim=-1, stable=True).indices
    position = torch.arange(-size, count * size, device=device)
    in_front, filled = position < 0, None
    last: int | Tensor = count - 1
    if keep is None:
        position = position.where(~in_front, position + count * size)[None]
        if count == 1 or tokens % size:
            filled = (position < tokens) & ~(in_front & (count == 1))
    else:
        lengths = keep.sum(1, keepdim=True)
        last_block = (lengths - 1).clamp(min=0) // size
        position = position.where(~in_front, position + (last_block + 1) * size)
        filled = (position < lengths) & ~(in_front & (last_block == 0))
        last = last_block[:, :, None, None]
    index = position.clamp(max=tokens - 1)[:, None, None].expand(*codes.shape[:3], -1)
    number = torch.arange(tokens, device=device).expand_as(order)
    places = torch.empty_like(order).scatter_(-1, order, number)
    rows = torch.arange(codes.shape[:3].numel(), device=device).view(*codes.shape[:3], 1)
    places = places + rows * ((count + 1) * size)
    return SortedBlocks(size, order.gather(3, index), places, filled, last)
