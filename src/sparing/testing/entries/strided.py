"""Test configurations of strided, and their references."""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor

from sparing.core.mask import Mask
from sparing.testing.claims import Equals, Matches
from sparing.testing.references import normalised, real_span, real_tokens
from sparing.testing.subjects import Entry


def dense_strided(made: Any, q: Tensor, k: Tensor, v: Tensor, *, mask: Mask) -> Tensor:
    """Softmax attention over explicit sets of keys, a square for each row and head."""
    keys = k.shape[2]
    seen = torch.zeros(q.shape[0], q.shape[1], keys, keys, dtype=torch.bool)
    for sample in range(len(q)):
        first, stop = real_span(mask, sample, keys)
        real = real_tokens(mask, sample, keys)[first:stop]
        itself = torch.eye(stop - first, dtype=torch.bool)
        for head in range(q.shape[1]):
            chosen = sets(made, head, stop - first) & real
            chosen = chosen.tril() if mask.causal else chosen
            empty = ~chosen.any(1, keepdim=True)
            seen[sample, head, first:stop, first:stop] = chosen | (itself & empty)
    scores = (q @ k.transpose(-1, -2)) / math.sqrt(q.shape[-1])
    return normalised(scores.exp() * seen[:, :, keys - q.shape[2] :], v, mask=mask)


def sets(made: Any, head: int, tokens: int) -> Bool[Tensor, "queries keys"]:
    """Whether the sets of a head hold key j for query i, in a row of ``tokens`` tokens."""
    stride = made.stride
    i, j = torch.meshgrid(torch.arange(tokens), torch.arange(tokens), indexing="ij")
    if made.pattern == "strided":
        first, second = (i - j).abs() < stride, (i - j) % stride == 0
    else:
        first, second = i // stride == j // stride, j % stride >= stride - made.summary
    half = first if head < (made.heads.count + 1) // 2 else second
    chosen: dict[str, Tensor] = {
        "merged": first | second,
        "heads": half,
        "first": first,
        "second": second,
    }
    return chosen[made.combine]


REFERENCE = dense_strided
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
