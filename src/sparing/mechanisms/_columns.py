"""Every ``stride``-th token: the columns of a row written as lines of ``stride`` tokens."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from sparing.core.tracing import is_traced
from sparing.mechanisms._pieces import Row
from sparing.mechanisms.shared.arithmetic import fused_softmax, wide

CACHED_ELEMENTS = 1 << 18
"""Scores in memory at a time: 1 MiB in float32."""


@dataclass(frozen=True)
class Layout:
    """A row of ``tokens`` in ``lines`` of ``stride`` tokens each, the last line filled up.

    Queries are the last tokens; they start in line ``skipped``. ``keep`` is (..., lines, stride),
    or None where all tokens are kept.
    """

    tokens: int
    stride: int
    lines: int
    skipped: int
    causal: bool
    device: torch.device
    keep: Tensor | None = None

    @classmethod
    def of(cls, row: Row, stride: int, causal: bool) -> Layout:
        """The layout of a single row; in export of a batch, with ``keep`` (batch, 1, ...).

        In export there are two lines or more at any length: export treats a size of one as a
        constant.
        """
        tokens, keep = row.k.shape[2], row.keep
        traced = is_traced()
        lines = tokens // stride + 2 if traced else -(-tokens // stride)
        skipped = 0 if traced else (tokens - row.q.shape[2]) // stride
        if keep is not None:
            keep = F.pad(keep, (0, lines * stride - tokens)).unfold(1, stride, stride)
            keep = keep[:, None] if traced else keep
        return cls(tokens, stride, lines, skipped, causal, row.k.device, keep)

    @property
    def unmasked(self) -> bool:
        """Whether all tokens are kept; False in export, where the code must serve any length."""
        return self.keep is None and not is_traced()

    @property
    def full(self) -> bool:
        """Whether every position holds a kept token; False in export."""
        return self.unmasked and self.tokens == self.lines * self.stride

    def real(self) -> Bool[Tensor, "*batch lines stride"]:
        """Which positions hold a kept token."""
        places = torch.arange(self.lines * self.stride, device=self.device)
        inside = (places < self.tokens).unfold(0, self.stride, self.stride)
        return inside if self.keep is None else inside & self.keep

    def laid(self, stream: Tensor, skipped: int = 0) -> Float[Tensor, "*batch lines stride dim"]:
        """A stream of the last tokens by lines, without the first ``skipped``: a view if it can."""
        missing = (self.lines - skipped) * self.stride - stream.shape[-2]
        after = self.lines * self.stride - self.tokens
        if is_traced() or missing:
            stream = F.pad(stream, (0, 0, missing - after, after))
        return stream.unfold(-2, self.stride, self.stride).mT

    def taken(self, mixed: Tensor, queries: int) -> Float[Tensor, "*batch queries dim"]:
        """The queries of a result that is laid out by lines."""
        start = self.tokens - queries - self.skipped * self.stride
        mixed = mixed.flatten(-3, -2)
        if is_traced():  # export cannot prove that a slice fits
            return mixed.index_select(-2, torch.arange(queries, device=mixed.device) + start)
        return mixed[..., start : start + queries, :]

    def column_seen(
        self, start: int, stop: int, reach: int
    ) -> Bool[Tensor, "*batch #stride queries keys"]:
        """The keys of their columns that queries in lines ``start`` to ``stop`` see.

        Columns have ``reach`` lines. Kept keys, causal only up to the query, and always the query's
        own.
        """
        line = torch.arange(start, stop, device=self.device)[:, None]
        other = torch.arange(reach, device=self.device)
        if self.causal and self.unmasked:  # positions behind the row come after all of its queries
            return (other <= line)[None]
        real = self.real()[..., :reach, :].transpose(-2, -1).unsqueeze(-2)
        return (real & (other <= line) if self.causal else real) | (other == line)

    def near(self, start: int, stop: int) -> Bool[Tensor, "*batch #lines stride keys"]:
        """The keys of their windows that queries see: kept, near, not themselves.

        Near means less than ``stride`` away.
        """
        size = self.stride * (2 if self.causal else 3)
        ahead = torch.arange(size, device=self.device) - self.stride
        ahead = ahead - torch.arange(self.stride, device=self.device)[:, None]
        seen = (ahead.abs() < self.stride) & ((ahead < 0) if self.causal else (ahead != 0))
        behind = self.causal or (stop + 1) * self.stride <= self.tokens
        if self.unmasked and start > 0 and behind:
            return seen[None]
        real = self.windows(self.framed(self.real().unsqueeze(-1)))
        return seen & real[..., start:stop, :, :].mT

    def framed(self, lines: Tensor) -> Tensor:
        """Tokens in one contiguous piece, a line of zeros before and, not causal, one behind."""
        after = 0 if self.causal else self.stride
        return F.pad(lines.flatten(-3, -2), (0, 0, self.stride, after))

    def windows(self, framed: Tensor) -> Tensor:
        """Each line with the one before it and, not causal, the next: (..., keys, dim)."""
        return framed.unfold(-2, self.stride * (2 if self.causal else 3), self.stride).mT

    def columns(self, framed: Tensor) -> Tensor:
        """The columns as (..., stride, lines, dim)."""
        tokens = framed[..., self.stride : (self.lines + 1) * self.stride, :]
        return tokens.unfold(-2, self.stride, self.stride).mT.transpose(-3, -2)


def column_attention(
    row: Row, stride: int, causal: bool, dropout: float
) -> Float[Tensor, "batch heads queries dim"]:
    """Exact softmax attention over the keys a multiple of ``stride`` away: columns as views."""
    layout = Layout.of(row, stride, causal)
    q, k, v = (part.transpose(-3, -2) for part in _grids(row, layout))
    if causal and layout.skipped == 0 and layout.unmasked:
        mixed = fused_softmax(q, k, v, causal=True, dropout=dropout)
    else:
        seen = None
        if causal or not layout.full:
            seen = layout.column_seen(layout.skipped, layout.lines, layout.lines)
            # Fused kernels take masks of two or four dimensions, not of three.
            seen = seen[None] if seen.ndim == 3 else seen
        mixed = fused_softmax(q, k, v, seen, dropout=dropout)
    return layout.taken(mixed.transpose(-3, -2), row.q.shape[2]).view_as(row.q)


def _grids(row: Row, layout: Layout) -> tuple[Tensor, Tensor, Tensor]:
    """Streams by lines, (heads, lines, stride, dim); in export with the batch before them."""
    traced = is_traced()
    q, k, v = (part if traced else part[0] for part in (row.q, row.k, row.v))
    return layout.laid(q, layout.skipped), layout.laid(k), layout.laid(v)


def band_and_columns(
    row: Row, stride: int, causal: bool, dropout: float, out: Tensor | None = None
) -> Float[Tensor, "batch heads queries dim"]:
    """One softmax over the keys less than ``stride`` away and those a multiple of it away.

    On CPU without gradients it takes a head and some lines at a time: the scores stay in the cache.
    """
    layout = Layout.of(row, stride, causal)
    queries, shift = row.q.shape[2], layout.tokens - row.q.shape[2]
    on_cpu = row.q.device.type == "cpu"
    out = row.room() if out is None and on_cpu else out
    if out is None or not on_cpu or is_traced():
        whole = _Part.of(layout, layout.skipped, layout.lines)
        mixed = layout.taken(_Merged.of(row, layout).mix(whole, dropout), queries)
        return mixed.to(row.q.dtype).view_as(row.q)
    parts = _parts(layout)
    for head in range(row.q.shape[1]):
        merged = _Merged.of(row.heads(head, head + 1), layout)
        for part in parts:
            mixed = merged.mix(part, dropout)[0].flatten(0, 1)
            start = max(shift, part.start * stride)
            stop = min(layout.tokens, part.stop * stride)
            rows = mixed[start - part.start * stride : stop - part.start * stride]
            out[0, head, start - shift : stop - shift] = rows
    return out


@dataclass(frozen=True)
class _Part:
    """Lines of queries that run together, and the values added to their scores: 0 or -inf.

    ``reach`` is how many lines their columns have.
    """

    start: int
    stop: int
    reach: int
    near: Tensor
    far: Tensor | None

    @classmethod
    def of(cls, layout: Layout, start: int, stop: int) -> _Part:
        """The part of a layout from one line to another."""
        reach = stop if layout.causal and not is_traced() else layout.lines
        far = None
        if layout.causal or not layout.full:
            far = _bias(layout.column_seen(start, stop, reach))
        return cls(start, stop, reach, _bias(layout.near(start, stop)), far)


def _bias(seen: Tensor) -> Tensor:
    return torch.zeros((), device=seen.device).where(seen, -torch.inf)


def _parts(layout: Layout) -> list[_Part]:
    """All lines in order: together, or alone if their windows reach beyond the row."""
    start, stop = layout.skipped, layout.lines
    keys = layout.stride * (2 if layout.causal else 3) + layout.lines
    step = max(1, CACHED_ELEMENTS // (layout.stride * keys))
    if step >= stop - start:
        return [_Part.of(layout, start, stop)]
    inner = stop if layout.causal else layout.tokens // layout.stride - 1
    cuts = sorted({start, max(start, 1), max(start, 1, inner), stop})
    return [
        _Part.of(layout, first, min(last, first + step))
        for begin, last in pairwise(cuts)
        for first in range(begin, last, step)
    ]


@dataclass(frozen=True)
class _Merged:
    """Queries by lines, keys and values framed, in float32 at least because scores are stored."""

    layout: Layout
    q: Tensor
    k: Tensor
    v: Tensor

    @classmethod
    def of(cls, row: Row, layout: Layout) -> _Merged:
        """Prepare a row."""
        row = replace(row, q=wide(row.q), k=wide(row.k), v=wide(row.v))
        q, k, v = _grids(row, layout)
        return cls(layout, q / math.sqrt(q.shape[-1]), layout.framed(k), layout.framed(v))

    def mix(self, part: _Part, dropout: float) -> Tensor:
        """Some lines of queries, each against its window and its columns."""
        layout, lines = self.layout, slice(part.start, part.stop)
        q = self.q[..., part.start - layout.skipped : part.stop - layout.skipped, :, :]
        k, v = (layout.columns(tokens)[..., : part.reach, :] for tokens in (self.k, self.v))
        k_near, v_near = (layout.windows(tokens)[..., lines, :, :] for tokens in (self.k, self.v))
        near = (q @ k_near.mT).add_(part.near)
        far = q.transpose(-3, -2) @ k.mT
        if part.far is not None:
            far = far.add_(part.far)
        weights = torch.cat([near, far.transpose(-3, -2)], -1).softmax(-1)
        weights = F.dropout(weights, dropout) if dropout else weights
        border = near.shape[-1]
        mixed = weights[..., :border] @ v_near
        far = weights[..., border:].transpose(-3, -2) @ v
        return mixed + far.transpose(-3, -2)
