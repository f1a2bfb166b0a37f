"""Test configurations of gaussian_keys, and their references."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from sparing.core.mask import Mask
from sparing.testing.claims import Matches
from sparing.testing.references import normalised
from sparing.testing.subjects import Entry


def dense_gaussian_keys(made: Any, q: Tensor, k: Tensor, v: Tensor, *, mask: Mask) -> Tensor:
    """Every Gaussian of every key and query, summed or the largest taken."""
    square = torch.zeros(*q.shape[:3], k.shape[2], dtype=q.dtype)
    for head in range(q.shape[1]):
        for i in range(q.shape[2]):
            square[:, head, i] = _weights(made, head, q[:, head, i, None], k[:, head])
    return normalised(square, v, mask=mask)


def _weights(made: Any, head: int, query: Tensor, keys: Tensor) -> Tensor:
    densities = []
    for r in range(made.components):
        variance = math.sqrt(keys.shape[-1]) / made.narrowing**r
        apart = query - (keys - made.shifts[r, head])
        densities.append(torch.exp(-(apart * apart).sum(-1) / (2 * variance)))
    if made.mixture == "hard":
        return torch.stack(densities).amax(0)
    shares = made.share_logits[head].exp() / made.share_logits[head].exp().sum()
    return torch.stack([share * one for share, one in zip(shares, densities, strict=True)]).sum(0)


REFERENCE = dense_gaussian_keys

ENTRIES = (
    Entry(
        ({}, {"mixture": "hard"}, {"components": 3, "narrowing": 3.0}, {"components": 1}),
        (Matches(dense_gaussian_keys),),
    ),
)
