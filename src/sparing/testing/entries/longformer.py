"""Test configurations of longformer, and their references."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from sparing.core.mask import Mask
from sparing.testing.claims import Matches
from sparing.testing.references import normalised, real_span, real_tokens
from sparing.testing.subjects import Entry


def dense_longformer(
    made: Any, q: Tensor, k: Tensor, v: Tensor, x: Tensor, *, mask: Mask
) -> Tensor:
    """Two squares of weights, local and global; each row from the square of its token."""
    tokens, scale = k.shape[2], math.sqrt(q.shape[3])
    if made.own_projections and made.global_tokens:
        global_q = _split(x @ made.global_q.T + made.global_q_bias, q)
        global_k = _split(x @ made.global_k.T, q)
        global_v = _split(x @ made.global_v.T + made.global_v_bias, q)
    else:
        global_q, global_k, global_v = q, k, v
    distance = (torch.arange(tokens)[:, None] - torch.arange(tokens)).abs()
    far = normalised((global_q @ global_k.mT / scale).exp(), global_v, mask=mask)
    scores, out = (q @ k.mT / scale).exp(), torch.zeros_like(q)
    for sample in range(len(q)):
        chosen = _chosen(made, mask, sample, tokens)
        seen = distance <= made.radius
        seen[:, chosen] = True
        row_mask = Mask(None if mask.keep is None else mask.keep[sample : sample + 1], mask.causal)
        out[sample] = normalised(scores[sample][None] * seen, v[sample][None], mask=row_mask)[0]
        out[sample][:, chosen] = far[sample][:, chosen]
    return out


def _split(projected: Tensor, q: Tensor) -> Tensor:
    """(batch, tokens, heads dim) as (batch, heads, tokens, dim)."""
    return projected.view(len(q), -1, q.shape[1], q.shape[3]).transpose(1, 2)


def _chosen(made: Any, mask: Mask, sample: int, tokens: int) -> list[int]:
    """A sample's global tokens, counted from its own start."""
    first, last = real_span(mask, sample, tokens)
    keep = real_tokens(mask, sample, tokens)
    known = [g for g in made.global_tokens if g >= 0 or not mask.causal]
    positions = {first + g if g >= 0 else last + g for g in known}
    return sorted(position for position in positions if first <= position < last and keep[position])


REFERENCE = dense_longformer
ENTRIES = (
    Entry(
        (
            {"radius": 2},
            {"radius": 4, "global_tokens": (0, -1)},
            {"radius": 17, "global_tokens": (-1, 0), "own_projections": False},
            {"radius": 3, "global_tokens": ()},
        ),
        (Matches(dense_longformer),),
        row_sums=False,
    ),
)
