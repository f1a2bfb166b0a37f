"""Attention over chosen key blocks: each query block gathers its own, nothing square is built."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sparing.mechanisms._shared import fused_softmax

CACHED_ELEMENTS = 1 << 19
"""Elements of gathered keys that are worked on at a time: 2 MiB in float32."""

_HEAD_ELEMENTS = 1 << 17
"""Elements of a stream's heads that are taken together: what many blocks gather stays near."""

Cropped = Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]


def each_cropped(
    attend: Cropped,
    q: Float[Tensor, "batch heads queries dim"],
    k: Float[Tensor, "batch heads keys dim"],
    v: Float[Tensor, "batch heads keys dim"],
    keep: Bool[Tensor, "batch keys"] | None,
) -> Float[Tensor, "batch heads queries dim"]:
    """``attend`` on every row without its outer pads: blocks then count from its first token.

    The queries are the last ones; those outside a row's own tokens get zeros. ``attend`` gets no
    ``keep`` unless pads stand between real tokens.
    """
    if keep is None:
        return attend(q, k, v, None)
    offset = k.shape[2] - q.shape[2]
    mixed = []
    for sample in range(q.shape[0]):
        row = slice(sample, sample + 1)
        real = keep[sample].nonzero()
        first, stop = (int(real[0]), int(real[-1]) + 1) if len(real) else (0, 0)
        start, end = max(0, first - offset), max(0, stop - offset)
        if start == end:
            mixed.append(torch.zeros_like(q[row]))
            continue
        inner = None if len(real) == stop - first else keep[row, first:stop]
        part = q[row, :, start:end], k[row, :, first:stop], v[row, :, first:stop]
        mixed.append(F.pad(attend(*part, inner), (0, 0, start, q.shape[2] - end)))
    return torch.cat(mixed) if len(mixed) > 1 else mixed[0]


def recorded(*streams: Tensor) -> bool:
    """Whether autograd keeps the intermediates anyway, so that small pieces save nothing."""
    return torch.is_grad_enabled() and any(stream.requires_grad for stream in streams)


@dataclass(frozen=True)
class Run:
    """Queries ``start`` to ``stop``: consecutive blocks that meet equally many keys.

    ``slots`` is how many key blocks each of the ``blocks`` query blocks gathers; with 0 slots they
    meet the row's first ``keys`` keys as they stand. ``ragged`` says that some gathered blocks
    may be the row's last, which is not full, and others not.
    """

    start: int
    stop: int
    keys: int
    blocks: int = 1
    slots: int = 0
    ragged: bool = False

    @property
    def pairs(self) -> int:
        """Scores that are computed for one head, those that a mask hides included."""
        return (self.stop - self.start) * self.keys

    def joins(self, later: Run) -> bool:
        """Whether one more block, right after, can be gathered and computed together with it."""
        size = (self.stop - self.start) // self.blocks
        kinds = [(run.slots, run.keys, run.ragged) for run in (self, later)]
        return self.slots > 0 and kinds[0] == kinds[1] and size == later.stop - later.start


@dataclass(frozen=True)
class Gathering:
    """Which key blocks each query block meets: ``chosen`` in ascending order, per head.

    Only the first ``slots`` of a run are looked at. ``runs`` cover the queries in order, which are
    the last tokens of the row. With ``causal`` a query's own block is the last it meets.
    """

    block: int
    causal: bool
    runs: tuple[Run, ...]
    chosen: Int[Tensor, "heads blocks slots"]


def gathered_attention(
    q: Float[Tensor, "batch heads queries dim"],
    k: Float[Tensor, "batch heads keys dim"],
    v: Float[Tensor, "batch heads keys dim"],
    keep: Bool[Tensor, "batch keys"] | None,
    gathering: Gathering,
    dropout: float = 0.0,
) -> Float[Tensor, "batch heads queries dim"]:
    """Exact softmax attention of every query block over the kept keys of its chosen blocks.

    A few heads and blocks at a time, so that what is gathered stays in the cache.
    """
    offset = k.shape[2] - q.shape[2]
    if q.device.type != "cpu" or recorded(q, k, v):
        chosen = gathering.chosen.repeat(q.shape[0], 1, 1)
        lines = (stream.flatten(0, 1) for stream in (q, k, v))
        real = None if keep is None else keep.repeat_interleave(q.shape[1], 0)
        step = q.shape[0] * q.shape[1] * k.shape[2]
        pieces = _pieces(*lines, real, gathering, chosen, step, dropout)
        return torch.cat([part for _, _, part in pieces], 1).view_as(q)
    mixed = torch.empty_like(q)
    heads = max(1, _HEAD_ELEMENTS // k[0, 0].numel())
    for sample in range(q.shape[0]):
        for head in range(0, q.shape[1], heads):
            own = sample, slice(head, head + heads)
            chosen = gathering.chosen[own[1]]
            real = None if keep is None else keep[sample].expand(len(chosen), -1)
            step = CACHED_ELEMENTS // (len(chosen) * q.shape[3])
            for start, stop, part in _pieces(
                q[own], k[own], v[own], real, gathering, chosen, step, dropout
            ):
                mixed[own][:, start - offset : stop - offset] = part
    return mixed


def _pieces(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    keep: Tensor | None,
    gathering: Gathering,
    chosen: Tensor,
    step: int,
    dropout: float,
) -> Iterator[tuple[int, int, Tensor]]:
    """The result piece by piece for streams (lines, tokens, dim), about ``step`` keys at a time."""
    offset, block = k.shape[1] - q.shape[1], gathering.block
    blocked = None
    for run in gathering.runs:
        if not run.slots:
            own = q[:, run.start - offset : run.stop - offset]
            yield run.start, run.stop, _whole(own, k, v, keep, run, gathering, dropout)
            continue
        blocked = blocked or _Blocked(k, v, keep, block, any(run.ragged for run in gathering.runs))
        count = max(1, step // (run.slots * block))
        size = (run.stop - run.start) // run.blocks
        for start in range(run.start, run.stop, count * size):
            stop, row = min(run.stop, start + count * size), start // block
            blocks = (stop - start) // size
            keys, values, real = blocked.take(chosen[:, row : row + blocks, : run.slots], run)
            own = q[:, start - offset : stop - offset].unflatten(1, (blocks, size))
            allowed = _allowed(run, gathering, real, q)
            part = fused_softmax(own, keys, values, allowed, dropout=dropout)
            yield start, stop, part.flatten(1, 2)


def _whole(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    keep: Tensor | None,
    run: Run,
    gathering: Gathering,
    dropout: float,
) -> Tensor:
    """The queries of a run against all keys that it reaches; PyTorch's kernel wants four axes."""
    real = None if keep is None else keep[:, : run.keys]
    q, k, v = q[None], k[None, :, : run.keys], v[None, :, : run.keys]
    if real is None and gathering.causal and q.shape[2] == run.keys:
        return fused_softmax(q, k, v, causal=True, dropout=dropout)[0]
    allowed = _allowed(run, gathering, real, q)
    return fused_softmax(q, k, v, allowed, dropout=dropout)[0]


def _allowed(run: Run, gathering: Gathering, real: Tensor | None, q: Tensor) -> Tensor | None:
    """What a query of the run may see of its keys: the past and the real, (..., queries, keys)."""
    allowed = None if real is None else real.unsqueeze(-2)
    if gathering.causal:
        size = (run.stop - run.start) // run.blocks
        before = run.start
        if run.slots:
            before = (run.slots - 1) * gathering.block + run.start % gathering.block
        past = torch.ones(size, run.keys, dtype=torch.bool, device=q.device).tril(before)
        allowed = past if allowed is None else past & allowed
    return allowed


class _Blocked:
    """Keys, values and what is real as blocks in one piece of memory, ready to be gathered."""

    def __init__(
        self, k: Tensor, v: Tensor, keep: Tensor | None, block: int, ragged: bool
    ) -> None:
        self.block, self.dim = block, k.shape[2]
        tail = -k.shape[1] % block
        if ragged and tail and keep is None:
            keep = k.new_ones(k.shape[:2], dtype=torch.bool)
        self.blocks = (k.shape[1] + tail) // block
        self.keys, self.values = (
            (F.pad(stream, (0, 0, 0, tail)) if tail else stream).reshape(-1, block * self.dim)
            for stream in (k, v)
        )
        self.real = None if keep is None else F.pad(keep, (0, tail)).reshape(-1, block)
        self._spare: dict[str, Tensor] = {}

    def take(self, chosen: Tensor, run: Run) -> tuple[Tensor, Tensor, Tensor | None]:
        """Keys and values (lines, blocks, keys, dim) and what of them is real, if it matters."""
        lines, blocks, _ = chosen.shape
        starts = torch.arange(lines, device=chosen.device)[:, None, None] * self.blocks
        places = (chosen + starts).flatten()
        keys = self._gather("keys", self.keys, places).view(lines, blocks, -1, self.dim)
        values = self._gather("values", self.values, places).view(lines, blocks, -1, self.dim)
        real = None
        if self.real is not None:
            real = self.real[places].view(lines, blocks, -1)[:, :, : run.keys]
        return keys[:, :, : run.keys], values[:, :, : run.keys], real

    def _gather(self, name: str, stream: Tensor, places: Tensor) -> Tensor:
        """Into memory used before, where autograd does not need it kept."""
        if recorded(stream):
            return stream.index_select(0, places)
        if name not in self._spare or len(self._spare[name]) < len(places):
            self._spare[name] = stream.new_empty(len(places), stream.shape[1])
        spare = self._spare[name][: len(places)]
        return torch.index_select(stream, 0, places, out=spare)
