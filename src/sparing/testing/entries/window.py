"""Test configurations of window, and their references."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from sparing.core.mask import Mask
from sparing.testing.claims import Equals, Matches
from sparing.testing.references import normalised
from sparing.testing.subjects import Entry


def dense_window(made: Any, q: Tensor, k: Tensor, v: Tensor, *, mask: Mask) -> Tensor:
    """Softmax attention under an explicit band: |i - j| <= radius."""
    queries, keys = q.shape[2], k.shape[2]
    rows = torch.arange(keys - queries, keys)[:, None]
    band = (rows - torch.arange(keys)).abs() <= made.radius
    scores = (q @ k.transpose(-1, -2)) / math.sqrt(q.shape[-1])
    return normalised(scores.exp() * band, v, mask=mask)


REFERENCE = dense_window
ENTRIES = (
    Entry(
        ({"radius": 2}, {"radius": 0}, {"radius": 17}),
        (Matches(dense_window), Equals("softmax", lambda tokens: {"radius": tokens})),
    ),
)
