"""Test configurations of none, and their references."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sparing.core.mask import Mask
from sparing.testing.claims import Matches
from sparing.testing.references import real_tokens
from sparing.testing.subjects import Entry


def own_values(made: Any, q: Tensor, k: Tensor, v: Tensor, *, mask: Mask) -> Tensor:
    """Token by token, its own value where it is real."""
    out = torch.zeros_like(q)
    for sample in range(len(q)):
        for token in real_tokens(mask, sample, k.shape[2]).nonzero()[:, 0].tolist():
            query = token - k.shape[2] + q.shape[2]
            if query >= 0:
                out[sample, :, query] = v[sample, :, token]
    return out


REFERENCE = own_values
ENTRIES = (Entry(({},), (Matches(own_values),)),)
