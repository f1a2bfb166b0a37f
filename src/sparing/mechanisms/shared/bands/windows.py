"""Blocks of queries, each against its window of keys: all blocks in one call, no loop."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

BLOCK = 128
"""Queries that share a window on an accelerator: a tile of its kernels."""
_WIDE_BLOCK = 256
"""Their number where windows are copied: fewer copies of a key, more scores."""
_ALIGNED = 8
"""Kernels read a mask without a copy of it where its rows are a multiple of 16 bytes."""


@dataclass(frozen=True)
class Windows:
    """Blocks of ``size`` queries that see keys from ``before`` their start to ``after`` their end.

    ``inside`` says which keys of its window a query of a block sees; None for all. ``past`` says
    that these are the block's own, up to the query: kernels know that without a mask.
    """

    size: int
    before: int
    after: int
    inside: Bool[Tensor, "size window"] | None = None
    past: bool = False

    @property
    def window(self) -> int:
        """Keys that a block sees."""
        return self.before + self.size + self.after


@dataclass(frozen=True)
class Globals:
    """Tokens that all queries see beside their windows: positions, and whether they exist.

    ``real`` is None where all of them do.
    """

    places: Int[Tensor, "#batch globals"]
    real: Bool[Tensor, "batch globals"] | None


def band(
    q: Float[Tensor, "batch heads queries dim"],
    k: Float[Tensor, "batch heads keys dim"],
    v: Float[Tensor, "batch heads keys dim"],
    keep: Bool[Tensor, "batch keys"] | None,
    before: int,
    after: int,
    dropout: float = 0.0,
    marked: Globals | None = None,
) -> Float[Tensor, "batch heads queries dim"]:
    """Exact softmax attention over the kept keys up to ``before`` behind and ``after`` ahead.

    The queries are the last tokens. Keys that are ``marked`` are seen from everywhere, causal
    (``after`` is 0) from behind them. A row no longer than a window is one masked square.
    """
    queries, keys = q.shape[2], k.shape[2]
    size = BLOCK if marked is None else max(_WIDE_BLOCK, before // BLOCK * BLOCK)
    if size + before + after >= keys:
        seen = _square(queries, keys, keep, before, after, marked, q.device)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=seen, dropout_p=dropout)
    reach = [-(-count // _ALIGNED) * _ALIGNED for count in (before, after)]
    order = torch.arange(size + sum(reach), device=q.device)
    ahead = order - reach[0] - order[:size, None]
    inside = (ahead >= -before) & (ahead <= after)
    windows = Windows(size, reach[0], reach[1], inside)
    columns = None if marked is None else _columns(q, k, v, before, after, marked)
    return windowed(q, k, v, keep, windows, dropout, columns)


def _square(
    queries: int,
    keys: int,
    keep: Tensor | None,
    before: int,
    after: int,
    marked: Globals | None,
    device: torch.device,
) -> Bool[Tensor, "#batch 1 queries keys"]:
    """Which keys a query sees, itself in any case."""
    order = torch.arange(keys, device=device)
    ahead = order - order[keys - queries :, None]
    seen = ((ahead >= -before) & (ahead <= after))[None]
    if marked is not None:
        here = marked.places.unsqueeze(2) == order
        here = here if marked.real is None else here & marked.real.unsqueeze(2)
        everywhere = here.any(1, keepdim=True)
        seen = seen | (everywhere if after else everywhere & (ahead <= 0))
    if keep is not None:
        seen = (seen & keep.unsqueeze(1)) | (ahead == 0)
    return seen.unsqueeze(1)


@dataclass(frozen=True)
class _Columns:
    """Keys beside the windows, (batch, heads, columns, dim), and which queries see them."""

    k: Tensor
    v: Tensor
    seen: Bool[Tensor, "batch queries columns"]


def _columns(q: Tensor, k: Tensor, v: Tensor, before: int, after: int, marked: Globals) -> _Columns:
    """The marked keys, for the queries that do not have them in their band; their count aligned."""
    positions = torch.arange(k.shape[2] - q.shape[2], k.shape[2], device=q.device).unsqueeze(1)
    ahead = marked.places.unsqueeze(1) - positions
    outside = (ahead < -before) | (ahead > after) if after else ahead < -before
    seen = outside if marked.real is None else outside & marked.real.unsqueeze(1)
    spare = -seen.shape[2] % _ALIGNED
    own_k, own_v = (F.pad(picked(keys, marked.places), (0, 0, 0, spare)) for keys in (k, v))
    return _Columns(own_k, own_v, F.pad(seen, (0, spare)))


def windowed(
    q: Float[Tensor, "batch heads queries dim"],
    k: Float[Tensor, "batch heads keys dim"],
    v: Float[Tensor, "batch heads keys dim"],
    keep: Bool[Tensor, "batch keys"] | None,
    windows: Windows,
    dropout: float = 0.0,
    columns: _Columns | None = None,
) -> Float[Tensor, "batch heads queries dim"]:
    """Exact softmax attention of each block of queries over the kept keys of its window.

    Blocks count from token 0, and the queries are the last tokens. A pad sees itself as well, so
    that it has a finite value.
    """
    batch, heads, queries, _ = q.shape
    start = max(0, (k.shape[2] - queries) // windows.size * windows.size - windows.before)
    start = start // windows.size * windows.size
    k, v = k[:, :, start:], v[:, :, start:]
    keep = None if keep is None else keep[:, start:]
    cut = _Cut.of(queries, k.shape[2], windows, padded=keep is not None)
    blocks = cut.queries(cut.lined(q))
    if windows.past and keep is None:
        own_k, own_v = (cut.keys(cut.lined(keys)) for keys in (k, v))
        mixed = F.scaled_dot_product_attention(blocks, own_k, own_v, None, dropout, True)
        return cut.joined(mixed, batch, heads)
    allowed = cut.allowed(keep, q.device)
    own_k, own_v = (cut.keys(cut.lined(keys)) for keys in (k, v))
    if columns is not None:
        assert allowed is not None
        own_k, own_v = (
            torch.cat([cut.repeated(cut.lined(beside)), inner], 2)
            for beside, inner in ((columns.k, own_k), (columns.v, own_v))
        )
        seen = cut.queries(columns.seen.unsqueeze(0))
        allowed = torch.cat([seen, allowed.expand(-1, seen.shape[1], -1, -1)], 3)
    mixed = F.scaled_dot_product_attention(blocks, own_k, own_v, allowed, dropout)
    return cut.joined(mixed, batch, heads)


@dataclass(frozen=True)
class _Cut:
    """How rows are folded into (lines, samples times blocks, block, dim).

    The second dimension has the windows, which overlap as views. Without pads a line is a row of
    any sample and head, so the mask is that of one row. With pads it is a head, and the mask is
    that of all samples. The first ``skipped`` blocks have no queries; ``front`` more tokens of the
    next one have none.
    """

    windows: Windows
    tokens: int
    length: int
    blocks: int
    skipped: int
    front: int
    padded: bool

    @classmethod
    def of(cls, queries: int, keys: int, windows: Windows, *, padded: bool) -> _Cut:
        """The cut of rows of ``keys`` tokens of which the queries are the last."""
        skipped, front = divmod(keys - queries, windows.size)
        return cls(windows, keys, queries, -(-keys // windows.size), skipped, front, padded)

    @property
    def whole(self) -> bool:
        """Whether the last block is full."""
        return self.tokens == self.blocks * self.windows.size

    def lined(self, stream: Tensor) -> Shaped[Tensor, "lines samples tokens dim"]:
        """A stream (batch, heads, tokens, dim): a view."""
        return stream.transpose(0, 1) if self.padded else stream.flatten(0, 1).unsqueeze(1)

    def queries(self, lined: Tensor) -> Shaped[Tensor, "lines blocks size dim"]:
        """The blocks of queries, or what there is for each of them."""
        behind = self.blocks * self.windows.size - self.tokens
        if self.front or behind:
            lined = F.pad(lined, (0, 0, self.front, behind))
        return lined.reshape(lined.shape[0], -1, self.windows.size, lined.shape[3])

    def keys(self, lined: Tensor) -> Shaped[Tensor, "lines blocks window dim"]:
        """The windows of the blocks: views of one copy, with zeros around the tokens."""
        windows, samples = self.windows, lined.shape[1]
        length = self.blocks * windows.size
        if self.whole and not windows.before and not windows.after:
            framed = lined.flatten(1, 2)
        else:
            total = windows.before + samples * length + windows.after
            framed = lined.new_zeros(lined.shape[0], total, lined.shape[3])
            inner = framed[:, windows.before : windows.before + samples * length]
            torch.unflatten(inner, 1, (samples, length))[:, :, : self.tokens] = lined
        seen = framed.unfold(1, windows.window, windows.size).mT
        if self.skipped:
            seen = torch.unflatten(seen, 1, (samples, self.blocks))
            seen = seen[:, :, self.skipped :].flatten(1, 2)
        return seen

    def repeated(self, lined: Tensor) -> Float[Tensor, "lines blocks columns dim"]:
        """What all blocks of a sample have."""
        blocks = self.blocks - self.skipped
        return lined.unsqueeze(2).expand(-1, -1, blocks, -1, -1).flatten(1, 2)

    def allowed(
        self, keep: Tensor | None, device: torch.device
    ) -> Bool[Tensor, "1 #blocks #size window"] | None:
        """Which keys of its window a query sees; None for all."""
        windows = self.windows
        if self.whole and keep is None and not windows.before and not windows.after:
            return None if windows.inside is None else windows.inside[None, None]
        starts = torch.arange(self.skipped, self.blocks, device=device)[:, None] * windows.size
        order = torch.arange(windows.window, device=device)
        places = starts + (order - windows.before)
        real = (places >= 0) & (places < self.tokens)
        if keep is not None:
            flags = self.keys(keep[None, :, :, None])[..., 0]
            real = (torch.unflatten(flags, 1, (keep.shape[0], -1)) & real).flatten(1, 2)[0]
        real = real[None, :, None]
        if windows.inside is None:
            return real | ~real.any(3, keepdim=True)
        itself = order == order[: windows.size, None] + windows.before
        return (windows.inside & real) | itself

    def joined(
        self, mixed: Float[Tensor, "lines blocks size dim"], batch: int, heads: int
    ) -> Float[Tensor, "batch heads queries dim"]:
        """Undo ``lined`` and ``queries``."""
        samples = batch if self.padded else 1
        rows = torch.unflatten(mixed, 1, (samples, -1)).flatten(2, 3)
        rows = rows[:, :, self.front : self.front + self.length]
        return rows.transpose(0, 1) if self.padded else rows.view(batch, heads, *rows.shape[2:])


def numbers(values: Sequence[int], device: torch.device) -> Int[Tensor, " values"]:
    """Whole numbers on a device: made there if they are evenly spaced, since a copy would wait."""
    steps = {after - before for before, after in pairwise(values)}
    if values and len(steps) <= 1 and steps != {0}:
        step = steps.pop() if steps else 1
        return torch.arange(values[0], values[-1] + (1 if step > 0 else -1), step, device=device)
    return torch.tensor(values, dtype=torch.int64, device=device)


def picked(
    stream: Float[Tensor, "batch heads tokens dim"], places: Int[Tensor, "#batch some"]
) -> Float[Tensor, "batch heads some dim"]:
    """The tokens at each row's own positions."""
    index = places[:, None, :, None].expand(stream.shape[0], stream.shape[1], -1, stream.shape[3])
    return stream.gather(2, index)


def placed(
    mixed: Float[Tensor, "batch heads queries dim"],
    rows: Float[Tensor, "batch heads some dim"],
    places: Int[Tensor, "#batch some"],
    real: Bool[Tensor, "#batch some"] | None,
) -> Float[Tensor, "batch heads queries dim"]:
    """``mixed`` with the real ones of ``rows`` at their positions, if these are among its own.

    ``real`` is None where all are.
    """
    queries = torch.arange(mixed.shape[2], device=mixed.device).unsqueeze(1)
    here = places.unsqueeze(1) == queries
    here = here if real is None else here & real.unsqueeze(1)
    spread = picked(rows, here.int().argmax(2))
    return spread.where(here.any(2)[:, None, :, None], mixed)


def few_rows(
    q: Float[Tensor, "batch heads few dim"],
    k: Float[Tensor, "batch heads keys dim"],
    v: Float[Tensor, "batch heads keys dim"],
    allowed: Bool[Tensor, "#batch #heads #few keys"] | None,
    *,
    dropout: float = 0.0,
) -> Float[Tensor, "batch heads few dim"]:
    """A few queries against all keys, as two products: fused kernels use few processors there.

    A query without an allowed key gets the mean of all values.
    """
    scores = (q / math.sqrt(q.shape[3])) @ k.mT
    if allowed is not None:
        scores = scores.masked_fill(~allowed, torch.finfo(scores.dtype).min)
    weights = scores.softmax(-1)
    return (F.dropout(weights, dropout) if dropout else weights) @ v


@dataclass(frozen=True)
class Aligned:
    """Streams in which every row begins with its first real token; ``real`` marks kept keys.

    Without pads these are the streams as they are, and ``real`` and ``first`` are None.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    real: Bool[Tensor, "batch keys"] | None = None
    first: Int[Tensor, " batch"] | None = None
    offset: int = 0
    queries: int = 0

    @classmethod
    def of(cls, q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None) -> Aligned:
        """Move rows to the left by their leading pads; then the queries are all tokens."""
        if keep is None:
            return cls(q, k, v)
        queries, keys = q.shape[2], k.shape[2]
        first = keep.int().argmax(1)
        index = torch.arange(keys, device=q.device) + first.unsqueeze(1)
        inside = index < keys
        index = index.clamp(max=keys - 1)
        of_queries = (index - (keys - queries)).clamp(min=0)
        real = keep.gather(1, index) & inside
        moved_k, moved_v = picked(k, index), picked(v, index)
        return cls(picked(q, of_queries), moved_k, moved_v, real, first, keys - queries, queries)

    def back(self, mixed: Tensor) -> Tensor:
        """A result at the positions of the queries; any finite value at leading pads."""
        if self.first is None:
            return mixed
        index = torch.arange(self.queries, device=mixed.device) + self.offset
        return picked(mixed, (index - self.first.unsqueeze(1)).clamp(min=0))
