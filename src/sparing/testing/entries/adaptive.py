"""Test configurations of adaptive, and their references."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sparing.core.mask import Mask
from sparing.testing.claims import Equals, Matches
from sparing.testing.references import real_tokens
from sparing.testing.subjects import Entry


def dense_adaptive(made: Any, q: Tensor, k: Tensor, v: Tensor, x: Tensor, *, mask: Mask) -> Tensor:
    """Head by head: score the row, cut its coordinates, then attention written out."""
    allowed = mask.dense(q.shape[2], k.shape[2])
    out = torch.zeros_like(q)
    for sample in range(len(q)):
        real = real_tokens(mask, sample, k.shape[2])
        for head in range(q.shape[1]):
            scores = _scores(made, x[sample], real, head)
            for query in range(q.shape[2]):
                seen = real if allowed is None else allowed[sample % len(allowed), 0, query]
                if not seen.any():
                    continue
                width = _width(made, scores[query].item())
                scale = math.sqrt(width if made.scale == "reduced" else q.shape[3])
                products = (
                    q[sample, head, query, :width] @ k[sample, head, seen][:, :width].T / scale
                )
                mixed = products.softmax(-1) @ v[sample, head, seen]
                out[sample, head, query] = mixed
                if made.reduce == "qkv":
                    out[sample, head, query, width:] = 0
    return out


def _scores(made: Any, x: Tensor, real: Tensor, head: int) -> Tensor:
    """The score of each token of one sample for one head."""
    if made.scores == "fixed":
        return torch.full((len(x),), made.score)
    if made.scores == "random":
        drawn: Tensor = made.drawn[head].expand(len(x))
        return drawn
    if made.scores == "global":
        learned: Tensor = made.logits[head].sigmoid().expand(len(x))
        return learned
    if made.scores == "pooled":
        return _network(made, x[real].mean(0))[head].expand(len(x))
    by_token = _network(made, x)[:, head]
    return by_token if made.per_query else by_token[real].mean().expand(len(x))


def _network(made: Any, x: Tensor) -> Tensor:
    first, second, last = zip(made.scorer.weights, made.scorer.biases, strict=True)
    hidden = F.gelu(F.gelu(x @ first[0].T + first[1]) @ second[0].T + second[1])
    scores: Tensor = (hidden @ last[0].T + last[1]).sigmoid()
    return scores


def _width(made: Any, score: float) -> int:
    """The coordinates of a score."""
    dim: int = made.heads.dim
    if made.threshold is not None and score > made.threshold:
        return dim
    if not made.levels:
        return max(1, math.floor(dim * score + 1e-4))
    sizes = sorted(max(1, math.ceil(dim / 2**step)) for step in range(made.levels))
    fitting = [size for size in sizes if size >= dim * score - 1e-4]
    return fitting[0] if fitting else dim


REFERENCE = dense_adaptive

ENTRIES = (
    Entry(
        (
            {"score": 0.385, "levels": 0, "threshold": None},
            {"scores": "pooled", "score": 0.516, "scale": "reduced", "reduce": "qkv"},
            {"per_query": True, "score": 0.4, "levels": 3, "scorer_share": 1.0},
        ),
        (Matches(dense_adaptive), Equals("softmax", {"scores": "fixed", "score": 1.0})),
        row_sums=False,
    ),
    Entry(
        (
            {"scores": "global", "score": 0.3},
            {"scores": "random", "levels": 0, "threshold": None},
            {"scores": "fixed", "score": 0.5},
        ),
        (Matches(dense_adaptive), Equals("softmax", {"scores": "fixed", "score": 1.0})),
    ),
)
