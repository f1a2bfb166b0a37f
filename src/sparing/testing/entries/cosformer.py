"""Test configurations of cosformer, and their references."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from sparing.core.mask import Mask
from sparing.testing.claims import Matches
from sparing.testing.references import normalised, real_span
from sparing.testing.subjects import Entry


def dense_cosformer(made: Any, q: Tensor, k: Tensor, v: Tensor, *, mask: Mask) -> Tensor:
    """cosFormer row by row, with the cosine of every distance written out."""
    out = torch.zeros_like(q)
    early = k.shape[2] - q.shape[2]
    for sample in range(len(q)):
        if mask.keep is not None and not mask.keep[sample].any():
            continue
        length = made.heads.tokens
        if made.length == "own" and not mask.causal:
            first, stop = real_span(mask, sample, k.shape[2])
            length = stop - first
        queries = torch.arange(q.shape[2], dtype=q.dtype) + early
        keys = torch.arange(k.shape[2], dtype=q.dtype)
        falloff = torch.cos((queries[:, None] - keys) * math.pi / 2 / length)
        scores = _features(made, q[sample]) @ _features(made, k[sample]).transpose(-1, -2)
        keep = None if mask.keep is None else mask.keep[sample][None]
        row_mask = Mask(keep, mask.causal)
        out[sample] = normalised((scores * falloff)[None], v[sample][None], mask=row_mask)[0]
    return out


def _features(made: Any, x: Tensor) -> Tensor:
    return x.clamp(min=0) if made.activation == "relu" else torch.nn.functional.elu(x) + 1


ENTRIES = (
    Entry(
        ({"activation": "elu"}, {"length": "fixed", "activation": "elu"}),
        (Matches(dense_cosformer),),
    ),
    # With features that may all be zero, a row may have no weights at all.
    Entry(({}, {"length": "fixed"}), (Matches(dense_cosformer),), row_sums=False),
)
REFERENCE = dense_cosformer
