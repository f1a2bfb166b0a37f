"""Test configurations of uniform, and their references."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sparing.core.mask import Mask
from sparing.testing.claims import Matches
from sparing.testing.references import real_tokens
from sparing.testing.subjects import Entry


def mean_of_visible(made: Any, q: Tensor, k: Tensor, v: Tensor, *, mask: Mask) -> Tensor:
    """Query by query, the mean of the values that it may see."""
    out = torch.zeros_like(q)
    for sample in range(len(q)):
        real = real_tokens(mask, sample, k.shape[2]).nonzero()[:, 0].tolist()
        for query in range(q.shape[2]):
            latest = query + k.shape[2] - q.shape[2] if mask.causal else k.shape[2]
            seen = [key for key in real if key <= latest]
            if seen:
                out[sample, :, query] = v[sample, :, seen].mean(1)
    return out


REFERENCE = mean_of_visible
ENTRIES = (Entry(({},), (Matches(mean_of_visible),)),)
