"""Test configurations of kerformer, and their references."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from sparing.core.mask import Mask
from sparing.testing.claims import Matches
from sparing.testing.references import normalised
from sparing.testing.subjects import Entry


def dense_kerformer(made: Any, q: Tensor, k: Tensor, v: Tensor, *, mask: Mask) -> Tensor:
    """Kerformer sample by sample, key by key, with every weight written out."""
    out = torch.zeros_like(q)
    for sample in range(len(q)):
        keep = torch.ones(k.shape[2]).bool() if mask.keep is None else mask.keep[sample]
        real = keep.nonzero()[:, 0].tolist()
        for head in range(q.shape[1]):
            square = _kerformer_square(made, q[sample, head], k[sample, head], real, mask.causal)
            values = v[sample, head][None, None]
            if "none" in (made.query_map, made.key_map):
                out[sample, head] = square @ values[0, 0]
                continue
            part = normalised(square[None, None], values, mask=Mask(keep[None], mask.causal))
            out[sample, head] = part[0, 0]
    return out


def _kerformer_square(made: Any, q: Tensor, k: Tensor, real: list[int], causal: bool) -> Tensor:
    q, k = q / made.temperature, k / made.temperature
    maps = {"sigmoid": q.sigmoid(), "softmax": q.softmax(-1), "none": q}
    queries = maps[made.query_map]
    if made.key_map == "none":
        keys = k
    elif made.axis == "feature":
        keys = k.softmax(-1)
    else:
        keys = torch.zeros_like(k)
        keys[real] = k[real].softmax(0)
    weights = torch.zeros(len(k), dtype=k.dtype)
    for j in real:
        seen = [other for other in real if other <= j] if causal else real
        weights[j] = _kerformer_weight(made, keys, j, seen, real[0])
    square: Tensor = queries @ (keys * weights[:, None]).T
    if "none" in (made.query_map, made.key_map):
        square = square.tril() if causal else square
        return square / (weights.cumsum(0)[:, None] if causal else weights.sum())
    return square


def _kerformer_weight(
    made: Any, keys: Tensor, j: int, seen: list[int], first: int
) -> Tensor | float:
    if made.se == "none":
        return 1.0
    if made.axis == "token":
        pooled = torch.zeros(made.squeeze.shape[1], dtype=keys.dtype)
        for other in seen:
            pooled[other - first] = keys[other].mean()
    else:
        pooled = keys[seen].mean(0)
    excited: Tensor = made.excite @ (made.squeeze @ pooled)
    if made.se == "fixed":
        placed: Tensor = (excited + made.bias)[j - first]
        return placed.sigmoid()
    logit: Tensor = math.sqrt(keys.shape[1]) * (excited @ keys[j]) + made.bias[0]
    return logit.sigmoid()


ENTRIES = (
    Entry(
        (
            {},
            {"se": "fixed"},
            {"se": "none"},
            {"axis": "token", "se": "fixed"},
            {"axis": "token", "se": "none", "query_map": "softmax"},
        ),
        (Matches(dense_kerformer),),
    ),
    Entry(
        ({"query_map": "none"}, {"se": "none", "key_map": "none"}),
        (Matches(dense_kerformer),),
        row_sums=False,
    ),
)
REFERENCE = dense_kerformer
