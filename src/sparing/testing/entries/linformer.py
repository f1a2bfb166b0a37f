"""Test configurations of linformer, and their references."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from sparing.core.mask import Mask
from sparing.testing.claims import Equals, Matches
from sparing.testing.references import real_span, real_tokens
from sparing.testing.subjects import Entry


def dense_linformer(made: Any, q: Tensor, k: Tensor, v: Tensor, *, mask: Mask) -> Tensor:
    """Each row cropped, its keys and values multiplied by the first columns of E and F."""
    out = torch.zeros_like(q)
    for sample in range(len(q)):
        first, last = real_span(mask, sample, k.shape[2])
        keep = real_tokens(mask, sample, k.shape[2])[first:last, None]
        own_k, own_v = (t[sample, :, first:last] * keep for t in (k, v))
        slots = min(made.slots, last - first)
        for_keys = made.key_projection[..., :slots, : last - first]
        shared = made.value_projection is None
        for_values = for_keys if shared else made.value_projection[..., :slots, : last - first]
        scores = q[sample] @ (for_keys @ own_k).transpose(-1, -2) / math.sqrt(q.shape[-1])
        out[sample] = scores.softmax(-1) @ (for_values @ own_v)
    return out


def _project_by_identity(made: Any) -> None:
    """As many slots as tokens, each slot one token."""
    made.key_projection.copy_(torch.eye(made.slots))
    made.value_projection.copy_(torch.eye(made.slots))


ENTRIES = (
    Entry(
        ({"slots": 5}, *({"slots": 5, "sharing": s} for s in ("none", "kv", "layerwise"))),
        (
            Matches(dense_linformer),
            Equals("softmax", lambda tokens: {"slots": tokens}, _project_by_identity),
        ),
        row_sums=False,
    ),
    Entry(({"slots": 5, "projection": "random"},), (Matches(dense_linformer),), row_sums=False),
    Entry(
        tuple({"projection": p, "stride": 3} for p in ("mean_pool", "convolution")),
        (Equals("softmax", {"projection": "mean_pool", "stride": 1}),),
        row_sums=False,
    ),
)
