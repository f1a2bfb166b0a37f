"""How strided is tested: its configurations and what they must equal."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from sparing.core.mask import Mask
from sparing.testing.claims import Equals, Matches
from sparing.testing.references import normalised, real_span, real_tokens
from sparing.testing.subjects import Entry


def dense_strided(made: Any, q: Tensor, k: Tensor, v: Tensor, *, mask: Mask) -> Tensor:
    """Softmax attention over explicit sets of keys, token by token for each row and head."""
    keys = k.shape[2]
    seen = torch.zeros(q.shape[0], q.shape[1], keys, keys, dtype=torch.bool)
    for sample in range(len(q)):
        first, stop = real_span(mask, sample, keys)
        real = {j for j in range(keys) if real_tokens(mask, sample, keys)[j]}
        for head in range(q.shape[1]):
            for i in range(first, stop):
                wanted = {
                    j
                    for j in range(first, i + 1 if mask.causal else stop)
                    if sees(made, head, i - first, j - first)
                } & real
                seen[sample, head, i, sorted(wanted or {i})] = True
    scores = (q @ k.transpose(-1, -2)) / math.sqrt(q.shape[-1])
    return normalised(scores.exp() * seen[:, :, keys - q.shape[2] :], v, mask=mask)


def sees(made: Any, head: int, i: int, j: int) -> bool:
    """Whether the sets of a head hold j for i, both counted from the row's first token."""
    stride = made.stride
    if made.pattern == "strided":
        sets = (abs(i - j) < stride, (i - j) % stride == 0)
    else:
        sets = (i // stride == j // stride, j % stride >= stride - made.summary)
    first_half = head < (made.heads.count + 1) // 2
    which = {"first": (0,), "second": (1,), "merged": (0, 1), "heads": (0,) if first_half else (1,)}
    return any(sets[number] for number in which[made.combine])


ENTRIES = (
    Entry(
        (
            {"stride": 5},
            {"stride": 4, "combine": "heads"},
            {"stride": 6, "pattern": "fixed", "summary": 2},
            {"stride": 4, "pattern": "fixed", "summary": 1, "combine": "heads"},
        ),
        (
            Matches(dense_strided),
            Equals("softmax", lambda tokens: {"stride": tokens}),
            Equals("softmax", lambda tokens: {"stride": tokens, "pattern": "fixed"}),
        ),
    ),
)
