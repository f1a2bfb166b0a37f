"""Test configurations of dct, and their references."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from sparing.core.mask import Mask
from sparing.testing.claims import Matches
from sparing.testing.references import real_span, real_tokens
from sparing.testing.subjects import Entry


def dense_dct(made: Any, q: Tensor, k: Tensor, v: Tensor, *, mask: Mask) -> Tensor:
    """Each row cropped; every wave written out number by number."""
    out = torch.zeros_like(q)
    for sample in range(len(q)):
        if not real_tokens(mask, sample, k.shape[2]).any():
            continue
        first, last = real_span(mask, sample, k.shape[2])
        keep = real_tokens(mask, sample, k.shape[2])[first:last, None]
        waves = cosines(min(made.frequencies, last - first), last - first)
        own_q, own_k, own_v = (waves @ (t[sample, :, first:last] * keep) for t in (q, k, v))
        scores = own_q @ own_k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        out[sample, :, first:last] = waves.T @ (scores.softmax(-1) @ own_v)
    return out


def cosines(frequencies: int, tokens: int) -> Tensor:
    """The first rows of the orthonormal DCT-II, in float64."""
    waves = [
        [math.cos(math.pi * (2 * t + 1) * u / (2 * tokens)) for t in range(tokens)]
        for u in range(frequencies)
    ]
    rows = torch.tensor(waves, dtype=torch.float64)
    return rows / rows.square().sum(1, keepdim=True).sqrt()


REFERENCE = dense_dct
ENTRIES = (Entry(({"frequencies": 5}, {"frequencies": 64}), (Matches(dense_dct),), row_sums=False),)
