"""Test configurations of ecoformer, and their references."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sparing.core.mask import Mask
from sparing.testing.claims import Matches
from sparing.testing.references import normalised
from sparing.testing.subjects import Entry


def dense_ecoformer(made: Any, q: Tensor, v: Tensor, *, mask: Mask) -> Tensor:
    """EcoFormer head by head: bits compared pair by pair, every weight written out."""
    out = torch.zeros_like(v)
    for head in range(q.shape[1]):
        x = q[:, head] / q[:, head].norm(dim=-1, keepdim=True).clamp(min=1e-12)
        squares = (x[:, :, None] - made.centres[head]).square().sum(-1)
        kernels = torch.exp(-squares / (2 * made.sigmas[head]))
        bits = (kernels - made.means[head]) @ made.directions[head].T >= 0
        alike = (bits[:, :, None] == bits[:, None]).sum(-1)
        # equal bits less different bits, and bits + 1
        weights = (2 * alike + 1).to(v.dtype)
        out[:, head] = normalised(weights[:, None], v[:, head, None], mask=mask)[:, 0]
    return out


ENTRIES = (Entry(({}, {"bits": 5, "anchors": 7}), (Matches(dense_ecoformer),)),)
REFERENCE = dense_ecoformer
