"""Test configurations of nystrom, and their references."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sparing.core.mask import Mask
from sparing.testing.claims import Equals, Matches
from sparing.testing.references import real_span, real_tokens
from sparing.testing.subjects import Entry


def dense_nystrom(made: Any, q: Tensor, k: Tensor, v: Tensor, *, mask: Mask) -> Tensor:
    """Each row cropped, landmarks as means of segments, then the formula factor by factor."""
    out = torch.zeros_like(q)
    scale = 1 / math.sqrt(q.shape[-1])
    for sample in range(len(q)):
        if not real_tokens(mask, sample, k.shape[2]).any():
            continue
        first, last = real_span(mask, sample, k.shape[2])
        own_q, own_k, own_v = (t[sample, :, first:last] for t in (q, k, v))
        parts = min(made.landmarks, last - first)
        q_means, k_means = (
            torch.stack([part.mean(1) for part in row.tensor_split(parts, 1)], 1)
            for row in (own_q, own_k)
        )
        left = (own_q @ k_means.transpose(-1, -2) * scale).softmax(-1)
        middle = (q_means @ k_means.transpose(-1, -2) * scale).softmax(-1)
        right = (q_means @ own_k.transpose(-1, -2) * scale).softmax(-1)
        mixed = left @ _inverse(made, middle) @ (right @ own_v)
        if made.conv_weight is not None:
            weight = made.conv_weight[:, None, :, None]
            mixed = mixed + F.conv2d(own_v, weight, padding="same", groups=len(weight))
        out[sample, :, first:last] = mixed
    return out


def _inverse(made: Any, middle: Tensor) -> Tensor:
    """The pseudo-inverse by a decomposition, or what the steps give."""
    if made.pinv == "exact":
        inverse: Tensor = torch.linalg.pinv(middle)
        return inverse
    largest = middle.sum(-2).amax(-1) * middle.sum(-1).amax(-1)
    one, z = torch.eye(middle.shape[-1]).to(middle), middle.mT / largest[:, None, None]
    for _ in range(made.iterations):
        z = z @ (13 * one - middle @ z @ (15 * one - middle @ z @ (7 * one - middle @ z))) / 4
    return z


REFERENCE = dense_nystrom


def _landmarks_everywhere(tokens: int) -> dict[str, Any]:
    return {"landmarks": tokens, "pinv": "exact"}


ENTRIES = (
    Entry(
        ({"landmarks": 5, "pinv": "exact"},),
        (Matches(dense_nystrom), Equals("softmax", _landmarks_everywhere)),
        row_sums=False,
    ),
    Entry(
        ({"landmarks": 5}, {"landmarks": 5, "conv_kernel": 3}),
        (
            Equals(
                "softmax",
                lambda tokens: {"landmarks": tokens, "iterations": 24},
                relative=1e-7,
            ),
        ),
        row_sums=False,
    ),
)
