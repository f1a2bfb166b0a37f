"""Slow, obvious forms in float64: what the fast ones are held against."""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from sparing.core.mask import Mask


def dense_softmax(
    q: Float[Tensor, "batch heads queries dim"],
    k: Float[Tensor, "batch heads keys dim"],
    v: Float[Tensor, "batch heads keys dim"],
    *,
    mask: Mask,
) -> Float[Tensor, "batch heads queries dim"]:
    """softmax(q k^T / sqrt(dim)) v over the visible keys, zeros where there is none."""
    scores = (q @ k.transpose(-1, -2)) / math.sqrt(q.shape[-1])
    return normalised(scores.exp(), v, mask=mask)


def normalised(
    weights: Float[Tensor, "batch heads queries keys"],
    v: Float[Tensor, "batch heads keys dim"],
    *,
    mask: Mask,
) -> Float[Tensor, "batch heads queries dim"]:
    """Rows of explicit weights, hidden keys removed, each divided by its sum."""
    allowed = mask.dense(weights.shape[-2], weights.shape[-1], weights.device)
    if allowed is not None:
        weights = weights.where(allowed, 0)
    total = weights.sum(-1, keepdim=True)
    return torch.where(total > 0, weights @ v / total.where(total > 0, 1), 0)


def dense_linear(made: Any, q: Tensor, k: Tensor, v: Tensor, *, mask: Mask) -> Tensor:
    """Linear attention with every weight written out, and PyTorch's own elu."""
    elu = torch.nn.functional.elu
    return normalised((elu(q) + 1) @ (elu(k) + 1).transpose(-1, -2), v, mask=mask)


def dense_kerformer(made: Any, q: Tensor, k: Tensor, v: Tensor, *, mask: Mask) -> Tensor:
    """Kerformer sample by sample, key by key, with every weight written out."""
    out = torch.zeros_like(q)
    for sample in range(len(q)):
        keep = torch.ones(k.shape[2]).bool() if mask.keep is None else mask.keep[sample]
        real = keep.nonzero()[:, 0].tolist()
        for head in range(q.shape[1]):
            square = _kerformer_square(made, q[sample, head], k[sample, head], real, mask.causal)
            own = v[sample, head][None, None]
            part = normalised(square[None, None], own, mask=Mask(keep[None], mask.causal))
            out[sample, head] = part[0, 0]
    return out


def _kerformer_square(made: Any, q: Tensor, k: Tensor, real: list[int], causal: bool) -> Tensor:
    q, k = q / made.temperature, k / made.temperature
    queries = q.sigmoid() if made.query_map == "sigmoid" else q.softmax(-1)
    if made.axis == "feature":
        keys = k.softmax(-1)
    else:
        keys = torch.zeros_like(k)
        keys[real] = k[real].softmax(0)
    weights = torch.zeros(len(k), dtype=k.dtype)
    for j in real:
        seen = [other for other in real if other <= j] if causal else real
        weights[j] = _kerformer_weight(made, keys, j, seen, real[0])
    return queries @ (keys * weights[:, None]).T


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


def dense_window(made: Any, q: Tensor, k: Tensor, v: Tensor, *, mask: Mask) -> Tensor:
    """Softmax attention under an explicit band: |i - j| <= radius."""
    queries, keys = q.shape[2], k.shape[2]
    rows = torch.arange(keys - queries, keys)[:, None]
    band = (rows - torch.arange(keys)).abs() <= made.radius
    scores = (q @ k.transpose(-1, -2)) / math.sqrt(q.shape[-1])
    return normalised(scores.exp() * band, v, mask=mask)


def dense_linformer(made: Any, q: Tensor, k: Tensor, v: Tensor, *, mask: Mask) -> Tensor:
    """Each row cropped, its keys and values multiplied by the first columns of E and F."""
    out = torch.zeros_like(q)
    for sample in range(len(q)):
        first, last = _real_span(mask, sample, k.shape[2])
        keep = _real(mask, sample, k.shape[2])[first:last, None]
        own_k, own_v = (t[sample, :, first:last] * keep for t in (k, v))
        slots = min(made.slots, last - first)
        for_keys = made.key_projection[..., :slots, : last - first]
        shared = made.value_projection is None
        for_values = for_keys if shared else made.value_projection[..., :slots, : last - first]
        scores = q[sample] @ (for_keys @ own_k).transpose(-1, -2) / math.sqrt(q.shape[-1])
        out[sample] = scores.softmax(-1) @ (for_values @ own_v)
    return out


def dense_nystrom(made: Any, q: Tensor, k: Tensor, v: Tensor, *, mask: Mask) -> Tensor:
    """Each row cropped, landmarks as means of segments, the middle inverted by a decomposition."""
    out = torch.zeros_like(q)
    scale = 1 / math.sqrt(q.shape[-1])
    for sample in range(len(q)):
        first, last = _real_span(mask, sample, k.shape[2])
        own_q, own_k, own_v = (t[sample, :, first:last] for t in (q, k, v))
        parts = min(made.landmarks, last - first)
        q_means, k_means = (
            torch.stack([part.mean(1) for part in own.tensor_split(parts, 1)], 1)
            for own in (own_q, own_k)
        )
        left = (own_q @ k_means.transpose(-1, -2) * scale).softmax(-1)
        middle = (q_means @ k_means.transpose(-1, -2) * scale).softmax(-1)
        right = (q_means @ own_k.transpose(-1, -2) * scale).softmax(-1)
        out[sample, :, first:last] = left @ torch.linalg.pinv(middle) @ (right @ own_v)
    return out


def _real(mask: Mask, sample: int, keys: int) -> Tensor:
    return torch.ones(keys).bool() if mask.keep is None else mask.keep[sample]


def _real_span(mask: Mask, sample: int, keys: int) -> tuple[int, int]:
    places = _real(mask, sample, keys).nonzero()[:, 0]
    return int(places[0]), int(places[-1]) + 1
