"""Tokens a stride apart: the columns of a row that is written down ``stride`` tokens to a line."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from sparing.mechanisms._pieces import Row
from sparing.mechanisms._shared import fused_softmax, wide

_CACHED_ELEMENTS = 1 << 18
"""Scores that are worked on at a time: 1 MiB in float32."""


@dataclass(frozen=True)
class Grid:
    """A row written ``stride`` tokens to a line: streams are (..., lines, stride, dim).

    Zeros fill the last line, and the first line of queries where these are the last tokens of the
    row: they start in line ``skipped``. ``real`` is (..., lines, stride), or None where all
    ``tokens`` are.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    real: Tensor | None
    tokens: int
    skipped: int
    causal: bool

    @property
    def stride(self) -> int:
        """Tokens in a line."""
        return self.k.shape[-2]

    @property
    def lines(self) -> int:
        """Lines of keys."""
        return self.k.shape[-3]

    def tokens_real(self) -> Bool[Tensor, "*batch lines stride"]:
        """Which places hold a real token."""
        places = torch.arange(self.lines * self.stride, device=self.k.device)
        inside = (places < self.tokens).unfold(0, self.stride, self.stride)
        return inside if self.real is None else inside & self.real

    def taken(self, mixed: Tensor, queries: int) -> Float[Tensor, "*batch queries dim"]:
        """The queries' own part of what is laid out like ``q``."""
        start = self.tokens - queries - self.skipped * self.stride
        mixed = mixed.flatten(-3, -2)
        if torch.compiler.is_compiling():  # export cannot prove that a slice fits
            return mixed.index_select(-2, torch.arange(queries, device=mixed.device) + start)
        return mixed[..., start : start + queries, :]


def grid_of(row: Row, stride: int, causal: bool) -> Grid:
    """Write a row of a batch down line by line, (heads, lines, ...); in export the whole batch.

    In export there are two lines or more at any length: one would be taken for a constant.
    """
    tokens, queries = row.k.shape[2], row.q.shape[2]
    if torch.compiler.is_compiling():
        lines, skipped = tokens // stride + 2, 0
        streams, keep = (row.q, row.k, row.v), row.keep
        keep = None if keep is None else keep.unsqueeze(1)
    else:
        lines, skipped = -(-tokens // stride), (tokens - queries) // stride
        streams, keep = (row.q[0], row.k[0], row.v[0]), row.keep
    before = tokens - queries - skipped * stride
    q = _laid(streams[0], before, lines - skipped, stride)
    k, v = (_laid(stream, 0, lines, stride) for stream in streams[1:])
    real = None
    if keep is not None:
        missing = lines * stride - tokens
        real = F.pad(keep, (0, missing)).unfold(-1, stride, stride)
    return Grid(q, k, v, real, tokens, skipped, causal)


def _laid(stream: Tensor, before: int, lines: int, stride: int) -> Tensor:
    """(..., tokens, dim) as (..., lines, stride, dim): a view unless zeros have to be added."""
    after = lines * stride - before - stream.shape[-2]
    if torch.compiler.is_compiling() or before or after:
        stream = F.pad(stream, (0, 0, before, after))
    return stream.unfold(-2, stride, stride).mT


def column_attention(
    row: Row, stride: int, causal: bool, dropout: float
) -> Float[Tensor, "batch heads queries dim"]:
    """Exact softmax attention over the keys a multiple of ``stride`` away: columns as views."""
    grid = grid_of(row, stride, causal)
    q, k, v = (stream.transpose(-3, -2) for stream in (grid.q, grid.k, grid.v))
    plain = grid.real is None and not torch.compiler.is_compiling()
    if causal and plain and grid.skipped == 0:
        mixed = fused_softmax(q, k, v, causal=True, dropout=dropout)
    else:
        whole = plain and not causal and grid.tokens % stride == 0
        allowed = None if whole else _column_allowed(grid, 0, q.shape[-2], k.shape[-2])
        mixed = fused_softmax(q, k, v, allowed, dropout=dropout)
    return grid.taken(mixed.transpose(-3, -2), row.q.shape[2]).view_as(row.q)


def _column_allowed(
    grid: Grid, start: int, stop: int, lines: int
) -> Bool[Tensor, "*batch stride queries keys"]:
    """Which of the first ``lines`` places of its column a query may see: real ones and itself."""
    own = torch.arange(start + grid.skipped, stop + grid.skipped, device=grid.k.device)[:, None]
    other = torch.arange(lines, device=grid.k.device)
    real = grid.tokens_real()[..., :lines, :].transpose(-2, -1).unsqueeze(-2)
    return (real & (other <= own) if grid.causal else real) | (other == own)


def band_and_columns(
    row: Row, stride: int, causal: bool, dropout: float, out: Tensor | None = None
) -> Float[Tensor, "batch heads queries dim"]:
    """One softmax over the keys less than ``stride`` away and those a multiple of it away.

    On CPU without gradients a head and some lines at a time, so that scores stay in the cache.
    """
    if torch.compiler.is_compiling():
        merged = _Merged.of(grid_of(row, stride, causal))
        mixed = merged.mix(0, merged.grid.lines, dropout)
        return merged.grid.taken(mixed, row.q.shape[2]).to(row.q.dtype)
    out = row.room() if out is None and row.q.device.type == "cpu" else out
    if out is None:
        grid = grid_of(row, stride, causal)
        mixed = _Merged.of(grid).mix(0, grid.q.shape[-3], dropout)
        return grid.taken(mixed, row.q.shape[2])[None].to(row.q.dtype)
    for head in range(row.q.shape[1]):
        merged = _Merged.of(grid_of(row.heads(head, head + 1), stride, causal))
        for start, stop in merged.parts():
            mixed = merged.mix(start, stop, dropout)[0].flatten(0, 1)
            shift = row.k.shape[2] - row.q.shape[2] - merged.grid.skipped * stride
            first, last = max(0, start * stride - shift), stop * stride - shift
            own = out[0, head, first:last]
            begin = first + shift - start * stride
            own.copy_(mixed[begin : begin + own.shape[0]])
    return out


@dataclass(frozen=True)
class _Merged:
    """What one softmax over band and columns needs; windows are lines with their neighbours."""

    grid: Grid
    q: Tensor
    k_windows: Tensor
    v_windows: Tensor

    @classmethod
    def of(cls, grid: Grid) -> _Merged:
        """Prepare a grid; in float32 at least, for scores are written down."""
        q, k, v = (wide(stream) for stream in (grid.q, grid.k, grid.v))
        grid = Grid(q, k, v, grid.real, grid.tokens, grid.skipped, grid.causal)
        k, v = (_windows(stream.flatten(-3, -2), grid) for stream in (k, v))
        return cls(grid, q / math.sqrt(q.shape[-1]), k, v)

    def parts(self) -> list[tuple[int, int]]:
        """Lines of queries that are mixed together; apart stand those whose windows reach out."""
        grid = self.grid
        lines = grid.q.shape[-3]
        step = _CACHED_ELEMENTS // (grid.stride * (3 * grid.stride + grid.lines))
        inner_stop = lines if grid.causal else grid.tokens // grid.stride - 1
        borders = {0, min(1, lines), max(1, min(inner_stop, lines)), lines}
        cuts = sorted(borders)
        parts = []
        for start, stop in pairwise(cuts):
            firsts = range(start, stop, max(1, step))
            parts += [(first, min(stop, first + max(1, step))) for first in firsts]
        return parts

    def mix(self, start: int, stop: int, dropout: float) -> Tensor:
        """The lines of queries from ``start`` to ``stop``, each against its window and columns."""
        grid, traced = self.grid, torch.compiler.is_compiling()
        q, lines = self.q[..., start:stop, :, :], slice(start + grid.skipped, stop + grid.skipped)
        reach = stop + grid.skipped if grid.causal and not traced else grid.lines
        k, v = (stream[..., :reach, :, :].transpose(-3, -2) for stream in (grid.k, grid.v))
        near = (q @ self.k_windows[..., lines, :, :].mT).add_(self._band_bias(start, stop))
        far = q.transpose(-3, -2) @ k.mT
        whole = not grid.causal and grid.real is None and grid.tokens == grid.lines * grid.stride
        if traced or not whole:
            far = far.add_(_bias(_column_allowed(grid, start, stop, reach), far))
        weights = torch.cat([near, far.transpose(-3, -2)], -1).softmax(-1)
        weights = F.dropout(weights, dropout) if dropout else weights
        border = near.shape[-1]
        mixed = weights[..., :border] @ self.v_windows[..., lines, :, :]
        far = weights[..., border:].transpose(-3, -2) @ v
        return mixed + far.transpose(-3, -2)

    def _band_bias(self, start: int, stop: int) -> Tensor:
        """0 for the keys in the window that are near, real and not the query itself, else -inf."""
        grid = self.grid
        size = self.k_windows.shape[-2]
        ahead = torch.arange(size, device=self.q.device) - grid.stride
        ahead = ahead - torch.arange(grid.stride, device=self.q.device)[:, None]
        allowed = (ahead.abs() < grid.stride) & ((ahead < 0) if grid.causal else (ahead != 0))
        first, last = start + grid.skipped, stop + grid.skipped
        inner = grid.real is None and not torch.compiler.is_compiling() and first > 0
        if not (inner and (grid.causal or (last + 1) * grid.stride <= grid.tokens)):
            real = grid.tokens_real().flatten(-2, -1).unsqueeze(-1)
            allowed = allowed & _windows(real, grid)[..., first:last, :, :].mT
        return _bias(allowed, self.q)


def _windows(tokens: Tensor, grid: Grid) -> Tensor:
    """Each line with the one before it and, not causal, the one after: (..., lines, keys, dim)."""
    after = 0 if grid.causal else grid.stride
    padded = F.pad(tokens, (0, 0, grid.stride, after))
    return padded.unfold(-2, 2 * grid.stride + after, grid.stride).mT


def _bias(allowed: Tensor, like: Tensor) -> Tensor:
    return like.new_zeros(()).where(allowed, -torch.inf)
