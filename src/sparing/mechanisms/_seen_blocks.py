"""Which blocks a block of tokens sees: its neighbours, global blocks and random ones."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

import torch
from jaxtyping import Int
from torch import Tensor

from sparing.mechanisms._sparse import Run

NONE = 1 << 40
"""Marks a slot without a block: more than any row has."""


@dataclass(frozen=True)
class Seen:
    """How many blocks a block sees: ``half`` a window each side, globals and random ones."""

    block: int
    half: int
    global_blocks: tuple[int, ...]
    random_blocks: int

    def global_rows(self, blocks: int, causal: bool) -> set[int]:
        """The global blocks of a row of so many; causal, its end is not known beforehand."""
        least = 0 if causal else -blocks
        return {number % blocks for number in self.global_blocks if least <= number < blocks}

    def slots(self, causal: bool) -> int:
        """The most blocks that ``chosen`` has for a block, those that do not exist included."""
        window = self.half + 1 if causal else 2 * self.half + 1
        known = [number for number in self.global_blocks if number >= 0 or not causal]
        return window + len(known) + self.random_blocks

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

    def chosen(
        self,
        draws: Int[Tensor, "heads random"],
        rows: Int[Tensor, " rows"],
        blocks: Int[Tensor, " batch"],
        causal: bool,
    ) -> Int[Tensor, "batch heads rows slots"]:
        """The blocks that each of ``rows`` sees where a sample has so many ``blocks``, ascending.

        Slots that are left over hold ``NONE`` or more.
        """
        ahead = torch.arange(-self.half, 1 if causal else self.half + 1, device=rows.device)
        limit = rows[None, :, None] + 1 if causal else blocks[:, None, None]
        limit = limit.expand(blocks.shape[0], rows.shape[0], 1)
        parts = [(rows[:, None] + ahead).expand(blocks.shape[0], -1, -1)]
        for number in self.global_blocks:
            if number >= 0:
                parts.append(torch.full_like(limit, number))
            elif not causal:
                parts.append((blocks[:, None, None] + number).expand_as(limit))
        known = _as_set(torch.cat(parts, -1), limit)[:, None]
        eligible = limit[:, None, :, 0] - (known < NONE).sum(-1)
        known = known.expand(-1, len(draws), -1, -1)
        drawn = self._drawn(draws, rows, eligible)
        return torch.cat([known, _skip(drawn, known)], -1).sort(-1).values

    def _drawn(
        self,
        draws: Int[Tensor, "heads random"],
        rows: Int[Tensor, " rows"],
        eligible: Int[Tensor, "batch 1 rows"],
    ) -> Int[Tensor, "batch heads rows random"]:
        """Different numbers below ``eligible`` for each row, ``NONE`` where these run out.

        They depend on the random numbers, the row's number and ``eligible`` only, at any length.
        """
        noise = _scrambled(draws[:, None] ^ _scrambled(rows + 1)[:, None])
        taken = eligible.new_empty(eligible.shape[0], len(draws), rows.shape[0], 0)
        for number in range(self.random_blocks):
            left = eligible - number
            drawn = _skip((noise[..., number] * left.clamp(min=1) >> 32)[..., None], taken)
            drawn = drawn.where(left[..., None] > 0, NONE)
            taken = torch.cat([taken, drawn], -1).sort(-1).values
        return taken


@functools.lru_cache(maxsize=64)
def runs(seen: Seen, queries: int, keys: int, causal: bool) -> tuple[Run, ...]:
    """All blocks of a row in order; neighbours with equally many keys are one run."""
    joined: list[Run] = []
    for row in range((keys - queries) // seen.block, -(-keys // seen.block)):
        run = seen.run(row, queries, keys, causal)
        last = joined.pop() if joined else None
        if last is not None and last.slots == run.slots == 0:
            joined.append(Run(last.start, run.stop, run.keys))
        elif last is not None and last.joins(run):
            joined.append(replace(last, stop=run.stop, blocks=last.blocks + 1))
        else:
            joined += [run] if last is None else [last, run]
    return tuple(joined)


def _as_set(numbers: Tensor, limit: Tensor) -> Tensor:
    """Sort along the last axis without duplicates; values outside 0 to ``limit`` are ``NONE``."""
    numbers = numbers.where((numbers >= 0) & (numbers < limit), NONE).sort(-1).values
    again = torch.zeros_like(numbers, dtype=torch.bool)
    again[..., 1:] = numbers[..., 1:] == numbers[..., :-1]
    return numbers.where(~again, NONE).sort(-1).values


def _skip(ranks: Tensor, known: Tensor) -> Tensor:
    """The rank-th number (from 0) that is not among ``known``, which ascends, for each rank."""
    gaps = known - torch.arange(known.shape[-1], device=known.device)
    return ranks + (gaps[..., None, :] <= ranks[..., None]).sum(-1)


def _scrambled(numbers: Tensor) -> Tensor:
    """A hash of integers from 0 to 2**32 - 1 within that range; no product overflows int64."""
    for _ in range(2):
        numbers = ((numbers ^ (numbers >> 16)) * 0x45D9F3B) & 0xFFFFFFFF
    return numbers ^ (numbers >> 16)
