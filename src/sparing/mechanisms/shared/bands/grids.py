"""Near tokens and every ``stride``-th one: a row as lines of ``stride`` tokens, and as columns."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from sparing.mechanisms.shared.arithmetic import wide
from sparing.mechanisms.shared.memory import parts_of


@dataclass(frozen=True)
class Grid:
    """Rows of ``tokens`` in ``lines`` of ``stride``, the last one filled up.

    Queries are the last tokens: they begin in line ``skipped``, behind ``front`` others. Positions
    count from token 0, which changes nothing: only differences matter.
    """

    tokens: int
    queries: int
    stride: int
    causal: bool
    keep: Bool[Tensor, "batch tokens"] | None

    @property
    def lines(self) -> int:
        """Lines of keys."""
        return -(-self.tokens // self.stride)

    @property
    def skipped(self) -> int:
        """Lines without queries."""
        return (self.tokens - self.queries) // self.stride

    @property
    def behind(self) -> int:
        """Positions behind the last token."""
        return self.lines * self.stride - self.tokens

    def lined(self, stream: Tensor) -> Float[Tensor, "batch heads lines stride dim"]:
        """A stream of the last tokens by lines; columns are its transposed view."""
        front = (self.tokens - stream.shape[2]) % self.stride
        if front or self.behind:
            stream = F.pad(stream, (0, 0, front, self.behind))
        return torch.unflatten(stream, 2, (-1, self.stride))

    def tokens_of(self, lined: Tensor) -> Float[Tensor, "batch heads queries dim"]:
        """The queries of a result by lines."""
        front = (self.tokens - self.queries) % self.stride
        return lined.flatten(2, 3)[:, :, front : front + self.queries]

    def real(self, device: torch.device) -> Bool[Tensor, "#batch lines stride"]:
        """Which positions hold a kept token."""
        keep = self.keep
        if keep is None:
            keep = torch.ones(1, self.tokens, dtype=torch.bool, device=device)
        return torch.unflatten(F.pad(keep, (0, self.behind)), 1, (-1, self.stride))

    def far(self, device: torch.device) -> Bool[Tensor, "#batch #stride queries keys"] | None:
        """The keys of its column that a query sees, itself always; None for all.

        Without pads, causal, one mask serves all columns: what is behind the row is in the future.
        """
        if not self.causal and self.keep is None and not self.behind:
            return None
        line = torch.arange(self.lines, device=device)
        ahead = line - line[self.skipped :, None]
        if self.causal and self.keep is None:
            return (ahead <= 0)[None, None]
        real = self.real(device).mT.unsqueeze(2)
        return (real & (ahead <= 0) if self.causal else real) | (ahead == 0)

    def near(self, device: torch.device) -> Bool[Tensor, "#batch lines stride window"]:
        """The keys less than ``stride`` away that a query sees, itself not: it is in its column."""
        size, window = self.stride, self.stride * (2 if self.causal else 3)
        ahead = torch.arange(-size, window - size, device=device)
        ahead = ahead - torch.arange(size, device=device)[:, None]
        inside = (ahead > -size) & ((ahead < 0) if self.causal else (ahead < size) & (ahead != 0))
        real = self.real(device).flatten(1)
        framed = F.pad(real, (size, window - 2 * size)).unfold(1, window, size)
        return inside & framed[:, self.skipped :].unsqueeze(2)


def column_attention(
    q: Float[Tensor, "batch heads queries dim"],
    k: Float[Tensor, "batch heads keys dim"],
    v: Float[Tensor, "batch heads keys dim"],
    grid: Grid,
    dropout: float,
) -> Float[Tensor, "batch heads queries dim"]:
    """Exact softmax attention over the kept keys a multiple of ``stride`` away."""
    batch, heads, _, dim = q.shape
    columns = [grid.lined(stream).transpose(2, 3) for stream in (q, k, v)]
    if grid.keep is None:
        lines = [part.flatten(0, 1) for part in columns]
    else:  # the mask of a sample serves all heads
        lines = [part.transpose(0, 1).flatten(1, 2) for part in columns]
    past = grid.causal and grid.keep is None and grid.skipped == 0
    allowed = None if past else grid.far(q.device)
    if allowed is not None and grid.keep is not None:
        allowed = allowed.flatten(0, 1)[None]
    own_q, own_k, own_v = lines
    mixed = F.scaled_dot_product_attention(own_q, own_k, own_v, allowed, dropout, past)
    if grid.keep is None:
        mixed = torch.unflatten(mixed, 0, (batch, heads))
    else:
        mixed = torch.unflatten(mixed, 1, (batch, grid.stride)).transpose(0, 1)
    return grid.tokens_of(mixed.transpose(2, 3)).view(batch, heads, grid.queries, dim)


def near_and_columns(
    q: Float[Tensor, "batch heads queries dim"],
    k: Float[Tensor, "batch heads keys dim"],
    v: Float[Tensor, "batch heads keys dim"],
    grid: Grid,
    dropout: float,
) -> Float[Tensor, "batch heads queries dim"]:
    """One softmax over the keys less than ``stride`` away and those a multiple of it away.

    The scores of both are stored, for as many heads at a time as memory allows.
    """
    near, far = grid.near(q.device), grid.far(q.device)
    scores = (grid.lines - grid.skipped) * grid.stride * (near.shape[3] + grid.lines)
    count = min(q.shape[1], parts_of(16 * q.shape[0] * q.shape[1] * scores, q.device))
    if count == 1:
        return _merged((q, k, v), grid, near, far, dropout)
    cut = (stream.tensor_split(count, 1) for stream in (q, k, v))
    mixed = [_merged(group, grid, near, far, dropout) for group in zip(*cut, strict=True)]
    return torch.cat(mixed, 1)


def _merged(
    streams: tuple[Tensor, ...],
    grid: Grid,
    near: Tensor,
    far: Tensor | None,
    dropout: float,
) -> Float[Tensor, "batch heads queries dim"]:
    """Both sets for some heads: products by line and by column, joined line by line."""
    q, k, v = streams
    batch, heads, _, dim = q.shape
    shape, window = (batch, heads, grid.lines - grid.skipped, grid.stride), near.shape[3]
    by_line = grid.lined(q)
    k_near, v_near = (_windows(stream, grid, window) for stream in (k, v))
    q_far, k_far, v_far = (_by_column(grid.lined(stream)) for stream in (q, k, v))
    scores = _product(by_line.reshape(-1, grid.stride, dim), k_near)
    scores = scores.view(*shape, window).masked_fill_(~near.unsqueeze(1), -torch.inf)
    columns = _product(q_far, k_far).view(batch, heads, grid.stride, shape[2], grid.lines)
    if far is not None:
        columns = columns.masked_fill_(~far.unsqueeze(1), -torch.inf)
    weights = torch.cat([scores, columns.transpose(2, 3)], 4).softmax(4).to(q.dtype)
    weights = F.dropout(weights, dropout) if dropout else weights
    of_columns = weights[..., window:].transpose(2, 3).flatten(0, 2) @ v_far
    of_columns = of_columns.view(batch, heads, grid.stride, shape[2], dim).transpose(2, 3)
    mixed = (weights[..., :window].flatten(0, 2) @ v_near).view(*shape, dim) + of_columns
    return grid.tokens_of(mixed)


def _product(q: Tensor, k: Tensor) -> Float[Tensor, "rows queries keys"]:
    """q k^T / sqrt(dim) in float32 at least: scores rounded to bfloat16 are off by a percent."""
    return (wide(q) / math.sqrt(q.shape[2])) @ wide(k).mT


def _by_column(lined: Tensor) -> Float[Tensor, "columns lines dim"]:
    """Lines as columns, those of all rows one after the other."""
    return lined.transpose(2, 3).flatten(0, 2)


def _windows(stream: Tensor, grid: Grid, window: int) -> Float[Tensor, "lines window dim"]:
    """The lines around each line of queries: views of one copy, in which row follows row.

    Beside a row are tokens of others: the mask hides them.
    """
    lined = grid.lined(stream)
    rows, lines, size = lined.shape[0] * lined.shape[1], grid.lines, grid.stride
    framed = F.pad(lined.reshape(-1, lined.shape[4]), (0, 0, size, window - 2 * size))
    seen = framed.unfold(0, window, size).mT
    if grid.skipped:
        seen = torch.unflatten(seen, 0, (rows, lines))[:, grid.skipped :].flatten(0, 1)
    return seen
