"""Test configurations of kernel, and their references."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from sparing.core.mask import Mask
from sparing.testing.claims import Equals, Matches
from sparing.testing.references import normalised
from sparing.testing.subjects import Entry


def dense_kernel(made: Any, q: Tensor, k: Tensor, v: Tensor, *, mask: Mask) -> Tensor:
    """The kernel of each query and key, feature by feature."""
    factor = 1 / math.sqrt(q.shape[-1]) if made.scale is None else made.scale
    square = torch.zeros(*q.shape[:3], k.shape[2], dtype=q.dtype)
    for head in range(q.shape[1]):
        for i in range(q.shape[2]):
            query = q[:, head, i, None]
            apart = query - k[:, head]
            if made.kernel == "dot":
                score = factor * (query * k[:, head]).sum(-1)
            elif made.kernel == "laplace":
                score = -factor * apart.abs().sum(-1)
            elif made.kernel == "module":
                score = factor * (apart.abs() - query.abs() - k[:, head].abs()).sum(-1)
            else:
                learned = torch.log1p(made.sharpness[head].exp())
                distance = learned * factor * (apart * apart).sum(-1)
                gaussian = made.kernel == "gaussian"
                score = torch.exp(-distance) if gaussian else 1 / (1 + distance)
            square[:, head, i] = score
    return normalised(square.exp(), v, mask=mask)


REFERENCE = dense_kernel

ENTRIES = (
    Entry(
        (
            {},
            {"kernel": "inverse_quadratic", "scale": 1.0},
            {"kernel": "laplace"},
            {"kernel": "module"},
            {"kernel": "dot"},
        ),
        (Matches(dense_kernel), Equals("softmax", {"kernel": "dot"})),
    ),
)
