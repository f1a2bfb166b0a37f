"""Attention over chosen key blocks: each query block gathers its own; no square is built."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from sparing.mechanisms._pieces import Row
from sparing.mechanisms.shared.arithmetic import fused_softmax

CACHED_ELEMENTS = 1 << 19
"""Elements of gathered keys in memory at a time: 2 MiB in float32."""

_HEAD_ELEMENTS = 1 << 17
"""Elements of a stream's heads that run together, so gathered blocks stay in the cache."""


@dataclass(frozen=True)
class Run:
    """Queries ``start`` to ``stop``: consecutive blocks with equally many keys.

    ``slots`` is how many key blocks each of the ``blocks`` query blocks gathers. With 0 slots they
    see the row's first ``keys`` keys without gathering. ``ragged`` says that some gathered blocks
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
        """Scores that are computed for one head, masked ones included."""
        return (self.stop - self.start) * self.keys

    def joins(self, later: Run) -> bool:
        """Whether the next block can be gathered and computed together with this run."""
        size = (self.stop - self.start) // self.blocks
        kinds = [(run.slots, run.keys, run.ragged) for run in (self, later)]
        return self.slots > 0 and kinds[0] == kinds[1] and size == later.stop - later.start


@dataclass(frozen=True)
class Gathering:
    """The key blocks of each query block: ``chosen`` in ascending order, per head.

    A run uses only the first ``slots`` of them. ``runs`` cover the queries in order, which are the
    last tokens of the row. With ``causal`` a query's own block is its last one.
    """

    block: int
    causal: bool
    runs: tuple[Run, ...]
    chosen: Int[Tensor, "heads blocks slots"]


def gathered_attention(
    row: Row, gathering: Gathering, dropout: float = 0.0, out: Tensor | None = None
) -> Float[Tensor, "batch heads queries dim"]:
    """Exact softmax attention of every query block over the kept keys of its chosen blocks.

    It takes a few heads and blocks at a time, so that gathered blocks stay in the cache, and writes
    into ``out`` where that is given. With gradients, or not on CPU, it takes all at once.
    """
    q, k, v, keep = row.q, row.k, row.v, row.keep
    batch, heads, keys, dim = k.shape
    if out is None and q.device.type == "cpu":
        out = row.room()
    if out is None:
        chosen = gathering.chosen.repeat(batch, 1, 1)
        lines = q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1)
        real = None if keep is None else keep.repeat_interleave(heads, 0)
        pieces = _pieces(*lines, real, gathering, chosen, batch * heads * keys, dropout)
        return torch.cat([part for _, _, part in pieces], 1).view_as(q)
    offset, step = keys - q.shape[2], max(1, _HEAD_ELEMENTS // (keys * dim))
    for sample in range(batch):
        for head in range(0, heads, step):
            index = sample, slice(head, head + step)
            chosen = gathering.chosen[index[1]]
            real = None if keep is None else keep[sample].expand(len(chosen), -1)
            tokens = CACHED_ELEMENTS // (len(chosen) * dim)
            streams = q[index], k[index], v[index], real
            for start, stop, part in _pieces(*streams, gathering, chosen, tokens, dropout):
                out[index][:, start - offset : stop - offset] = part
    return out


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
            queries = q[:, run.start - offset : run.stop - offset]
            yield run.start, run.stop, _whole(queries, k, v, keep, run, gathering, dropout)
            continue
        blocked = blocked or _Blocked(
            k,
            v,
            keep,
            block,
            ragged=any(run.ragged for run in gathering.runs),
            recorded=torch.is_grad_enabled() and any(part.requires_grad for part in (q, k, v)),
        )
        count = max(1, step // (run.slots * block))
        size = (run.stop - run.start) // run.blocks
        for start in range(run.start, run.stop, count * size):
            stop, row = min(run.stop, start + count * size), start // block
            blocks = (stop - start) // size
            keys, values, real = blocked.take(chosen[:, row : row + blocks, : run.slots], run)
            queries = q[:, start - offset : stop - offset].reshape(len(q), blocks, size, -1)
            allowed = _allowed(run, gathering, real, q)
            part = fused_softmax(queries, keys, values, allowed, dropout=dropout)
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
    """The queries of a run against all keys that it reaches; PyTorch's kernel needs four axes."""
    real = None if keep is None else keep[:, : run.keys]
    q, k, v = q[None], k[None, :, : run.keys], v[None, :, : run.keys]
    if real is None and gathering.causal and q.shape[2] == run.keys:
        return fused_softmax(q, k, v, causal=True, dropout=dropout)[0]
    allowed = _allowed(run, gathering, real, q)
    return fused_softmax(q, k, v, allowed, dropout=dropout)[0]


def _allowed(run: Run, gathering: Gathering, real: Tensor | None, q: Tensor) -> Tensor | None:
    """The keys of a run that a query may see, past and real ones, (..., queries, keys)."""
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
    """Keys, values and the keep mask as blocks in contiguous memory, ready to be gathered.

    ``recorded`` says that gradients of q, k or v are recorded: then everything gathered is kept for
    them.
    """

    def __init__(
        self, k: Tensor, v: Tensor, keep: Tensor | None, block: int, *, ragged: bool, recorded: bool
    ) -> None:
        self.block, self.dim, self._recorded = block, k.shape[2], recorded
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
        """Keys and values (lines, blocks, keys, dim) and their keep mask, if it matters."""
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
        """Gather into reused memory, where autograd does not need it kept."""
        if self._recorded:
            return stream.index_select(0, places)
        if name not in self._spare or len(self._spare[name]) < len(places):
            self._spare[name] = stream.new_empty(len(places), stream.shape[1])
        spare = self._spare[name][: len(places)]
        return torch.index_select(stream, 0, places, out=spare)
