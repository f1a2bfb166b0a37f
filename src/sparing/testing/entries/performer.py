"""Test configurations of performer, and their references."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from sparing.core.mask import Mask
from sparing.testing.claims import Matches
from sparing.testing.references import normalised
from sparing.testing.subjects import Entry


def dense_performer(made: Any, q: Tensor, k: Tensor, v: Tensor, *, mask: Mask) -> Tensor:
    """Every feature of every token and every weight written out, without a stabiliser."""
    queries, keys = (_features(made, x / q.shape[-1] ** 0.25) for x in (q, k))
    return normalised(queries @ keys.transpose(-1, -2), v, mask=mask)


def _features(made: Any, x: Tensor) -> Tensor:
    rows = made.directions.rows
    projected = torch.stack([(x * row).sum(-1) for row in rows], -1)
    if made.feature_map == "relu":
        return projected.clamp(min=0) + 1e-3
    return (projected - x.square().sum(-1, keepdim=True) / 2).exp() / math.sqrt(len(rows))


ENTRIES = (
    Entry(
        (
            {},
            {"feature_map": "relu", "features": 21},
            {"orthogonal": False, "scaling": "fixed", "features": 5},
        ),
        (Matches(dense_performer),),
    ),
)
REFERENCE = dense_performer
