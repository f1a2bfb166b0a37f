"""Test configurations of yoso, and their references."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from sparing.core.mask import Mask
from sparing.testing.claims import Matches
from sparing.testing.references import real_span
from sparing.testing.subjects import Entry


def dense_yoso(made: Any, q: Tensor, k: Tensor, v: Tensor, *, mask: Mask) -> Tensor:
    """Every weight written out: by the angle, or by comparing the signs of each hash."""
    angles = torch.nn.functional.cosine_similarity(q[:, :, :, None], k[:, :, None], dim=-1).acos()
    if made.expectation:
        weights = (1 - angles / math.pi) ** made.bits
    else:
        weights = torch.zeros_like(angles)
        for head in range(q.shape[1]):
            for planes in made.planes[head].to(q):
                q_codes, k_codes = q[:, head] @ planes > 0, k[:, head] @ planes > 0
                weights[:, head] += (q_codes[:, :, None] == k_codes[:, None]).all(-1)
    allowed = mask.dense(q.shape[2], k.shape[2])
    mixed: Tensor = (weights if allowed is None else weights.where(allowed, 0)) @ v
    mixed = mixed / torch.linalg.vector_norm(mixed, dim=-1, keepdim=True)
    if made.conv_weight is not None:
        mixed = mixed + _convolved(made.conv_weight, v, mask)
    return mixed


def _convolved(weight: Tensor, v: Tensor, mask: Mask) -> Tensor:
    """Each row cropped, each token as a sum over its neighbours."""
    out, reach = torch.zeros_like(v), weight.shape[1] // 2
    for sample in range(len(v)):
        if mask.keep is not None and not mask.keep[sample].any():
            continue
        first, last = real_span(mask, sample, v.shape[2])
        for i in range(first, last):
            for j in range(max(first, i - reach), min(last, i + reach + 1)):
                out[sample, :, i] += weight[:, j - i + reach, None] * v[sample, :, j]
    return out


ENTRIES = (
    Entry(
        (
            {},
            {"bits": 3, "conv_kernel": 5},
            {"expectation": False, "bits": 3, "hashes": 10},
            {"expectation": False, "bits": 2, "hashes": 3, "conv_kernel": 3},
        ),
        (Matches(dense_yoso),),
        row_sums=False,
    ),
)
REFERENCE = dense_yoso
