"""Test configurations of skyformer, and their references."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from sparing.core.mask import Mask
from sparing.testing.claims import Matches
from sparing.testing.references import real_tokens
from sparing.testing.subjects import Entry


def dense_skyformer(made: Any, q: Tensor, k: Tensor, v: Tensor, *, mask: Mask) -> Tensor:
    """Pads removed, one row sampled from each part, the matrix inverted by a decomposition."""
    out = torch.zeros_like(q)
    for sample in range(len(q)):
        real = real_tokens(mask, sample, k.shape[2])
        own_q, own_k, own_v = (t[sample][:, real] for t in (q, k, v))
        drawn = drawn_rows(made, torch.cat([own_q, own_k], 1))
        between = gaussian(drawn, drawn) + made.ridge * torch.eye(drawn.shape[1]).double()
        inverse = torch.linalg.inv(between) if made.inverse == "exact" else _steps(made, between)
        out[sample][:, real] = gaussian(own_q, drawn) @ inverse @ gaussian(drawn, own_k) @ own_v
    return out


def drawn_rows(made: Any, rows: Tensor) -> Tensor:
    """One row of each of ``landmarks`` parts, at its share of the part's size."""
    total = rows.shape[1]
    parts = min(made.landmarks, total)
    places = []
    for part in range(parts):
        start, stop = part * total // parts, (part + 1) * total // parts
        places.append(start + int(made.places[part]) * (stop - start) // 2**31)
    return rows[:, places]


def gaussian(a: Tensor, b: Tensor) -> Tensor:
    """The kernel of all pairs."""
    apart = a[:, :, None] - b[:, None]
    return torch.exp(-(apart * apart).sum(-1) / (2 * math.sqrt(a.shape[-1])))


def _steps(made: Any, between: Tensor) -> Tensor:
    """The inverse after the iterative steps."""
    one = torch.eye(between.shape[-1], dtype=torch.float64)
    scale = torch.diag_embed(between.sum(-1) ** -0.5)
    a, z = scale @ between @ scale, one
    for _ in range(made.iterations):
        z = z @ (13 * one - a @ z @ (15 * one - a @ z @ (7 * one - a @ z))) / 4
    return scale @ z @ scale


REFERENCE = dense_skyformer
ENTRIES = (
    Entry(
        ({"landmarks": 6}, {"landmarks": 6, "inverse": "iterative", "iterations": 3}),
        (Matches(dense_skyformer),),
        row_sums=False,
    ),
)
