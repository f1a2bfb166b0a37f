"""Test configurations of bigbird, and their references."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from sparing.core.mask import Mask
from sparing.testing.claims import Equals, Matches
from sparing.testing.references import normalised, real_span
from sparing.testing.subjects import Entry


def dense_bigbird(made: Any, q: Tensor, k: Tensor, v: Tensor, *, mask: Mask) -> Tensor:
    """Softmax attention under BigBird's mask, written out token by token for each row and head."""
    keys = k.shape[2]
    offset = keys - q.shape[2]
    seen = torch.zeros(q.shape[0], q.shape[1], keys, keys, dtype=torch.bool)
    for sample in range(len(q)):
        first, stop = real_span(mask, sample, keys)
        for head in range(q.shape[1]):
            blocks = seen_blocks(made, head, -(-(stop - first) // made.block), mask.causal)
            for i in range(first, stop):
                for j in range(first, stop):
                    query_block, key_block = (i - first) // made.block, (j - first) // made.block
                    seen[sample, head, i, j] = key_block in blocks[query_block]
    scores = (q @ k.transpose(-1, -2)) / math.sqrt(q.shape[-1])
    return normalised(scores.exp() * seen[:, :, offset:], v, mask=mask)


def seen_blocks(made: Any, head: int, blocks: int, causal: bool) -> list[set[int]]:
    """The set of blocks that each block of a row of ``blocks`` blocks sees."""
    marked = {g if g >= 0 else blocks + g for g in made.global_blocks if g >= 0 or not causal}
    half, seen = made.window_blocks // 2, []
    for row in range(blocks):
        within = set(range(row + 1 if causal else blocks))
        known = (marked | set(range(row - half, row + half + 1))) & within
        others = sorted(within - known)
        for number in range(min(made.random_blocks, len(others))):
            known.add(others.pop(_scrambled_draw(made, head, row, number) * len(others) >> 32))
        seen.append(within if row in marked else known)
    return seen


def _scrambled_draw(made: Any, head: int, row: int, number: int) -> int:
    """The hash of the stored number and the block's number, as in the mechanism."""
    return _scrambled(int(made.draws[head, number]) ^ _scrambled(row + 1))


def _scrambled(number: int) -> int:
    for _ in range(2):
        number = ((number ^ (number >> 16)) * 0x45D9F3B) % 2**32
    return number ^ (number >> 16)


REFERENCE = dense_bigbird
ENTRIES = (
    Entry(
        (
            {"block": 2, "random_blocks": 2},
            {"block": 3, "window_blocks": 1, "global_blocks": (1, 4), "random_blocks": 1},
            {"block": 4, "global_blocks": (), "random_blocks": 0},
            {"block": 16, "window_blocks": 1, "global_blocks": (-2,), "random_blocks": 0},
        ),
        (
            Matches(dense_bigbird),
            Equals("softmax", lambda tokens: {"block": 2, "window_blocks": 2 * tokens + 1}),
        ),
        row_sums=True,
    ),
)
