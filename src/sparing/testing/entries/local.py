"""Test configurations of local, and their references."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from sparing.core.mask import Mask
from sparing.testing.claims import Equals, Matches
from sparing.testing.references import normalised, real_span
from sparing.testing.subjects import Entry


def dense_local(made: Any, q: Tensor, k: Tensor, v: Tensor, *, mask: Mask) -> Tensor:
    """Every pair of tokens checked: is the block of the key one that the query's head sees?"""
    tokens = k.shape[2]
    seen = torch.zeros(len(q), q.shape[1], tokens, tokens, dtype=torch.bool)
    for sample in range(len(q)):
        first, last = real_span(mask, sample, tokens)
        numbers = (torch.arange(tokens) - first).div(made.block, rounding_mode="floor")
        query_block, key_block = numbers[:, None], numbers
        for head in range(q.shape[1]):
            if shift := made.shifts[head % len(made.shifts)]:
                seen[sample, head] = key_block == (query_block + shift) % max(
                    1, math.ceil((last - first) / made.block)
                )
            else:
                near = (key_block >= query_block - made.look_back) & (
                    key_block <= query_block + made.look_ahead
                )
                seen[sample, head] = near
    scores = q @ k.mT / math.sqrt(q.shape[3])
    return normalised(scores.exp() * seen, v, mask=mask)


REFERENCE = dense_local
ENTRIES = (
    Entry(
        (
            {"block": 4},
            {"block": 5, "look_back": 1},
            {"block": 3, "look_back": 2, "look_ahead": 1},
            {"block": 4, "shifts": (0, 1)},
        ),
        (Matches(dense_local), Equals("softmax", lambda tokens: {"block": tokens})),
    ),
)
