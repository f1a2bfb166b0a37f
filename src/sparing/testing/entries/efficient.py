"""Test configurations of efficient, and their references."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sparing.core.mask import Mask
from sparing.testing.claims import Matches
from sparing.testing.references import real_tokens
from sparing.testing.subjects import Entry


def dense_efficient(made: Any, q: Tensor, k: Tensor, v: Tensor, *, mask: Mask) -> Tensor:
    """Efficient attention query by query: each softmax over the keys that this query may see."""
    out = torch.zeros_like(q)
    for sample in range(len(q)):
        real = real_tokens(mask, sample, k.shape[2])
        for i in range(q.shape[2]):
            seen = real.clone()
            if mask.causal:
                seen[k.shape[2] - q.shape[2] + i + 1 :] = False
            if not seen.any():
                continue
            keys, values = k[sample][:, seen], v[sample][:, seen]
            if made.normalisation == "scaling":
                weights = (keys @ q[sample, :, i, :, None])[..., 0] / seen.sum()
            else:
                query = q[sample, :, i].softmax(-1)
                weights = (keys.softmax(1) @ query[..., None])[..., 0]
            out[sample, :, i] = (weights[..., None] * values).sum(1)
    return out


ENTRIES = (
    Entry(({},), (Matches(dense_efficient),)),
    Entry(({"normalisation": "scaling"},), (Matches(dense_efficient),), row_sums=False),
)
REFERENCE = dense_efficient
