"""BigBird: blocks attend to a window, to global blocks and to random blocks."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from sparing.core.errors import UsageError
from sparing.core.heads import Heads
from sparing.core.mask import Mask
from sparing.core.mechanism import Mechanism
from sparing.core.tracing import is_traced
from sparing.core.traits import Traits
from sparing.core.workload import Cost, Workload
from sparing.mechanisms._pieces import Row, row_by_row
from sparing.mechanisms._sparse import (
    CACHED_ELEMENTS,
    Gathering,
    Run,
    gathered_attention,
)
from sparing.mechanisms.shared.arithmetic import fused_softmax

_NONE = 1 << 40
"""Marks a slot without a block: more than any row has."""


class Bigbird(Mechanism):
    """Blocks of tokens attend to their neighbours, to global blocks and to a few random blocks.

    Formula: out_i = sum_j w_ij v_j with w_ij = softmax of q_i . k_j / sqrt(dim) over the keys j
    in the blocks window(I) + global + random(I), taken as one set, I being the block of i;
    every j where I itself is global. Causal: only j <= i of these.

    Symbols: blocks of ``block`` tokens count from a row's first token, and the last may be short;
    window(I) is the ``window_blocks`` blocks around I (causal: those of them up to I);
    ``global_blocks`` are numbers of blocks, negative ones from the row's end; random(I) is
    ``random_blocks`` further blocks, fewer where there are not so many, sampled per head with
    ``seed``; ``dropout`` is the share of weights dropped while training.

    Cost: 4 dim block (window_blocks + globals + random_blocks) flops for each query, and all keys
    for the few global blocks; linear in the tokens. Up to window_blocks + random_blocks + 2 blocks
    nearly all blocks are seen and nothing is saved. With a window over all it equals ``softmax``.

    Source: Zaheer et al., 2020, arXiv 2007.14062, section 2 and appendix D (internal transformer
    construction). What differs: any length, with blocks and random choices that follow each row's
    own tokens. Global blocks can be chosen. Random blocks differ from each other and from all other
    seen blocks, in evaluation too. (There the transformers library sees block 0 several times
    instead.) The causal form is not in the paper. In it, blocks counted from the end are not
    global: a token must not depend on how many follow.
    """

    traits = Traits(
        paper="Big Bird: Transformers for Longer Sequences, arXiv 2007.14062",
        year=2020,
        family="sparse",
        arm=True,
        causal=True,
        random=True,
    )
    draws: Tensor

    def __init__(
        self,
        heads: Heads,
        *,
        block: int = 64,
        window_blocks: int = 3,
        global_blocks: Sequence[int] = (0, -1),
        random_blocks: int = 3,
        seed: int = 0,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(heads)
        if block < 1:
            raise UsageError(f"bigbird: block must be at least 1; got {block}")
        if window_blocks < 1 or window_blocks % 2 == 0:
            raise UsageError(f"bigbird: window_blocks must be odd; got {window_blocks}")
        if random_blocks < 0:
            raise UsageError(f"bigbird: random_blocks must not be negative; got {random_blocks}")
        self.block = block
        self.window_blocks = window_blocks
        self.global_blocks = tuple(global_blocks)
        self.random_blocks = random_blocks
        self.seed = seed
        self.dropout = dropout
        if random_blocks == 0:
            self.traits = replace(type(self).traits, random=False)
        generator = torch.Generator().manual_seed(seed)
        shape = (heads.count, random_blocks)
        draws = torch.randint(2**32, shape, generator=generator, device="cpu")
        self.register_buffer("draws", draws)

    def mix(
        self,
        q: Float[Tensor, "batch heads queries dim"],
        k: Float[Tensor, "batch heads keys dim"],
        v: Float[Tensor, "batch heads keys dim"],
        *,
        mask: Mask,
    ) -> Float[Tensor, "batch heads queries dim"]:
        """Exact attention over the kept keys of the seen blocks."""
        if is_traced():
            return self._without_loops(q, k, v, mask)

        def mix_row(row: Row, out: Tensor | None) -> Tensor:
            gathering = self._gathering(row.q.shape[2], row.k.shape[2], mask.causal)
            return gathered_attention(row, gathering, self._dropped, out)

        return row_by_row(mix_row, Row(q, k, v, mask.keep), alike=mask.keep is None)

    @property
    def _dropped(self) -> float:
        return self.dropout if self.training else 0.0

    @property
    def _seen(self) -> _Seen:
        return _Seen(self.block, self.window_blocks // 2, self.global_blocks, self.random_blocks)

    def cost(self, work: Workload) -> Cost:
        """Two products over the pairs in the blocks; gathered blocks are stored besides."""
        runs = _runs(self._seen, work.queries, work.keys, work.causal)
        pairs = work.rows * sum(run.pairs for run in runs)
        output = work.rows * work.queries * work.dim
        gathered = [run.blocks * run.slots * self.block * work.dim * work.heads for run in runs]
        return Cost(
            matmul_flops=4 * pairs * work.dim,
            other_flops=5 * pairs,
            peak_bytes=work.element_bytes * (output + 2 * min(CACHED_ELEMENTS, max(gathered))),
        )

    def _gathering(self, queries: int, keys: int, causal: bool) -> Gathering:
        """The blocks that each block of a row sees, and which of them run together."""
        blocks = -(-keys // self.block)
        rows = torch.arange(blocks, device=self.draws.device)
        chosen = self._chosen(rows, rows.new_full((1,), blocks), causal)
        runs = _runs(self._seen, queries, keys, causal)
        return Gathering(self.block, causal, runs, chosen[0])

    def _chosen(
        self, rows: Int[Tensor, " rows"], blocks: Int[Tensor, " batch"], causal: bool
    ) -> Int[Tensor, "batch heads rows slots"]:
        """The blocks that each of ``rows`` sees where a sample has so many ``blocks``, ascending.

        Slots that are left over hold ``_NONE`` or more.
        """
        half = self.window_blocks // 2
        ahead = torch.arange(-half, 1 if causal else half + 1, device=rows.device)
        limit = rows[None, :, None] + 1 if causal else blocks[:, None, None]
        limit = limit.expand(blocks.shape[0], rows.shape[0], 1)
        parts = [(rows[:, None] + ahead).expand(blocks.shape[0], -1, -1)]
        for number in self.global_blocks:
            if number >= 0:
                parts.append(torch.full_like(limit, number))
            elif not causal:
                parts.append((blocks[:, None, None] + number).expand_as(limit))
        known = _as_set(torch.cat(parts, -1), limit)[:, None]
        eligible = limit[:, None, :, 0] - (known < _NONE).sum(-1)
        known = known.expand(-1, self.heads.count, -1, -1)
        drawn = self._drawn(rows, eligible)
        return torch.cat([known, _skip(drawn, known)], -1).sort(-1).values

    def _drawn(
        self, rows: Int[Tensor, " rows"], eligible: Int[Tensor, "batch 1 rows"]
    ) -> Int[Tensor, "batch heads rows random"]:
        """Different numbers below ``eligible`` for each row, ``_NONE`` where these run out.

        They depend on the random numbers, the row's number and ``eligible`` only, at any length.
        """
        noise = _scrambled(self.draws[:, None] ^ _scrambled(rows + 1)[:, None])
        taken = eligible.new_empty(eligible.shape[0], self.heads.count, rows.shape[0], 0)
        for number in range(self.random_blocks):
            left = eligible - number
            drawn = _skip((noise[..., number] * left.clamp(min=1) >> 32)[..., None], taken)
            drawn = drawn.where(left[..., None] > 0, _NONE)
            taken = torch.cat([taken, drawn], -1).sort(-1).values
        return taken

    def _without_loops(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
        """The same for any length in one formula, for export: blocks gathered and masked.

        There are always two blocks or more: export treats a size of one as a constant.
        """
        batch, _, keys, _ = k.shape
        first, span = q.new_zeros(batch).long(), torch.full((batch,), keys, device=q.device)
        if mask.keep is not None:
            first, span = mask.first(), mask.span()
        blocks, within = (
            (span + self.block - 1) // self.block,
            torch.arange(self.block).to(q.device),
        )
        rows = torch.arange(keys // self.block + 2, device=q.device)
        positions = first[:, None, None] + rows[:, None] * self.block + within
        chosen = self._chosen(rows, blocks, mask.causal)
        places = chosen[..., None] * self.block + within
        places = (first[:, None, None, None, None] + places).flatten(3)
        allowed = (places < (first + span)[:, None, None, None])[:, :, :, None]
        mixed = self._at_places(q, k, v, mask, positions, (places.clamp(max=keys - 1), allowed))
        everywhere = torch.arange(keys, device=q.device).expand(batch, 1, 1, -1)
        for number in self.global_blocks:
            if number >= 0 or not mask.causal:
                row = number + (blocks if number < 0 else 0 * blocks)
                tokens = (first + row * self.block)[:, None, None] + within
                whole = self._at_places(q, k, v, mask, tokens, (everywhere, None))
                mixed = whole.where((rows == row[:, None])[:, None, :, None, None], mixed)
        index = torch.arange(keys - q.shape[2], keys, device=q.device) - first[:, None]
        return _at(mixed.flatten(2, 3), index.clamp(min=0)[:, None])

    def _at_places(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Mask,
        positions: Int[Tensor, "batch rows block"],
        seen: tuple[Tensor, Tensor | None],
    ) -> Tensor:
        """Queries at ``positions`` against keys at places (batch, heads or 1, rows, keys).

        A query sees the allowed keys that are kept and, causal, not later than itself.
        """
        places, allowed = seen
        allowed = (
            torch.ones_like(places[:, :, :, None], dtype=torch.bool) if allowed is None else allowed
        )
        if mask.keep is not None:
            allowed = allowed & _at(mask.keep[:, None, :, None], places)[:, :, :, None, :, 0]
        if mask.causal:
            allowed = allowed & (places[:, :, :, None] <= positions[:, None, ..., None])
        offset = k.shape[2] - q.shape[2]
        queries = _at(q, (positions - offset).clamp(0, q.shape[2] - 1)[:, None])
        k, v = _at(k, places), _at(v, places)
        return fused_softmax(queries, k, v, allowed, dropout=self._dropped)


def _at(stream: Tensor, places: Tensor) -> Tensor:
    """The tokens at ``places`` (batch, 1 or heads, ...) of (batch, 1 or heads, tokens, dim)."""
    samples = torch.arange(places.shape[0], device=places.device)
    heads = torch.arange(stream.shape[1], device=places.device)
    extra = (1,) * (places.ndim - 2)
    return stream[samples.view(-1, 1, *extra), heads.view(1, -1, *extra), places]


def _as_set(numbers: Tensor, limit: Tensor) -> Tensor:
    """Sort along the last axis without duplicates; values outside 0 to ``limit`` are ``_NONE``."""
    numbers = numbers.where((numbers >= 0) & (numbers < limit), _NONE).sort(-1).values
    again = torch.zeros_like(numbers, dtype=torch.bool)
    again[..., 1:] = numbers[..., 1:] == numbers[..., :-1]
    return numbers.where(~again, _NONE).sort(-1).values


def _skip(ranks: Tensor, known: Tensor) -> Tensor:
    """The rank-th number (from 0) that is not among ``known``, which ascends, for each rank."""
    gaps = known - torch.arange(known.shape[-1], device=known.device)
    return ranks + (gaps[..., None, :] <= ranks[..., None]).sum(-1)


def _scrambled(numbers: Tensor) -> Tensor:
    """A hash of integers from 0 to 2**32 - 1 within that range; no product overflows int64."""
    for _ in range(2):
        numbers = ((numbers ^ (numbers >> 16)) * 0x45D9F3B) & 0xFFFFFFFF
    return numbers ^ (numbers >> 16)


@dataclass(frozen=True)
class _Seen:
    """How many blocks a block sees: ``half`` a window each side, globals and random ones."""

    block: int
    half: int
    global_blocks: tuple[int, ...]
    random_blocks: int

    def global_rows(self, blocks: int, causal: bool) -> set[int]:
        """The global blocks of a row of so many; causal, its end is not known beforehand."""
        least = 0 if causal else -blocks
        return {number % blocks for number in self.global_blocks if least <= number < blocks}

    def run(self, row: int, queries: int, keys: int, causal: bool) -> Run:
        """One block of a row of ``keys`` tokens, of which the queries are the last, on its own."""
        size, blocks = self.block, -(-keys // self.block)
        start, stop = max(row * size, keys - queries), min((row + 1) * size, keys)
        marked, last = self.global_rows(blocks, causal), row if causal else blocks - 1
        near = range(max(0, row - self.half), min(last, row + self.half) + 1)
        known = {number for number in marked if number <= last} | set(near)
        count = min(len(known) + self.random_blocks, last + 1)
        if row in marked or count == last + 1:
            return Run(start, stop, stop if causal else keys)
        short = blocks * size - keys
        gathered = count * size - (short if blocks - 1 in known else 0)
        ragged = short > 0 and not causal and blocks - 1 not in known
        return Run(start, stop, gathered, slots=count, ragged=ragged)


@functools.lru_cache(maxsize=64)
def _runs(seen: _Seen, queries: int, keys: int, causal: bool) -> tuple[Run, ...]:
    """All blocks of a row in order; neighbours with equally many keys are one run."""
    runs: list[Run] = []
    for row in range((keys - queries) // seen.block, -(-keys // seen.block)):
        run = seen.run(row, queries, keys, causal)
        last = runs.pop() if runs else None
        if last is not None and last.slots == run.slots == 0:
            runs.append(Run(last.start, run.stop, run.keys))
        elif last is not None and last.joins(run):
            runs.append(replace(last, stop=run.stop, blocks=last.blocks + 1))
        else:
            runs += [run] if last is None else [last, run]
    return tuple(runs)
