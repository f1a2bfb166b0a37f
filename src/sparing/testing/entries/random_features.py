"""Test configurations of random_features, and their references."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from sparing.core.mask import Mask
from sparing.testing.claims import Matches
from sparing.testing.references import real_tokens
from sparing.testing.subjects import Entry


def recurrent_features(made: Any, q: Tensor, k: Tensor, v: Tensor, *, mask: Mask) -> Tensor:
    """Row by row and head by head, key after key: the state is read at the query's position."""
    out = torch.zeros_like(q)
    for sample in range(len(q)):
        real = real_tokens(mask, sample, k.shape[2])
        for head in range(q.shape[1]):
            streams = (q[sample, head], k[sample, head], v[sample, head])
            out[sample, head] = _recurrence(made, head, *streams, real, mask.causal)
    return out


def _recurrence(
    made: Any, head: int, q: Tensor, k: Tensor, v: Tensor, real: Tensor, causal: bool
) -> Tensor:
    queries, keys = (_features(made, head, x) for x in (q, k))
    early = len(k) - len(q)
    sums, weight = torch.zeros(keys.shape[1], v.shape[1] + 1).to(v), torch.zeros(()).to(v)
    reads = []
    for position in range(len(k)):
        if real[position]:
            gate = _gate(made, head, k[position])
            share = 1 - gate if made.gate else gate
            values = torch.cat([v[position], torch.ones(1).to(v)])
            sums = gate * sums + share * torch.outer(keys[position], values)
            weight = gate * weight + share
        if causal and position >= early:
            reads.append(_read(made, queries[position - early], sums, weight))
    if not causal:
        reads = [_read(made, query, sums, weight) for query in queries]
    return torch.stack(reads)


def _gate(made: Any, head: int, k: Tensor) -> Tensor:
    if not made.gate:
        return torch.ones(()).to(k)
    logit: Tensor = made.gate_weight[head] @ k + made.gate_bias[head, 0]
    return logit.sigmoid()


def _features(made: Any, head: int, x: Tensor) -> Tensor:
    length = x.norm(dim=-1, keepdim=True).clamp(min=1e-12)
    x = made.sigma[head] * x / length / made.temperature
    projected = x @ made.directions.rows.T
    if made.feature_map == "positive":
        features: Tensor = (projected - x.square().sum(-1, keepdim=True) / 2).exp()
    else:
        features = torch.cat([projected.sin(), projected.cos()], -1)
    return features / math.sqrt(made.features)


def _read(made: Any, query: Tensor, sums: Tensor, weight: Tensor) -> Tensor:
    if weight == 0:
        return torch.zeros_like(sums[0, :-1])
    *_, total = mixed = query @ sums
    least = made.floor * weight if made.feature_map == "trigonometric" else 0 * weight
    if total.abs() < least:
        total = least if total >= 0 else -least
    return torch.as_tensor(mixed[:-1] / total)


ENTRIES = (
    Entry(
        (
            {},
            {"gate": True, "temperature": 1.5, "orthogonal": True},
            {"feature_map": "positive", "features": 16},
            {"feature_map": "positive", "features": 16, "gate": True},
        ),
        (Matches(recurrent_features),),
    ),
)
REFERENCE = recurrent_features
