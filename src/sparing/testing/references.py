"""Slow, plain forms in float64: the references of the fast ones."""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float
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


def real_tokens(mask: Mask, sample: int, keys: int) -> Bool[Tensor, " keys"]:
    """Which tokens of a sample are real."""
    return torch.ones(keys).bool() if mask.keep is None else mask.keep[sample]


def real_span(mask: Mask, sample: int, keys: int) -> tuple[int, int]:
    """The first real token of a sample, and the one after its last; 0 and 0 if there is none."""
    places = real_tokens(mask, sample, keys).nonzero()[:, 0].tolist()
    return (places[0], places[-1] + 1) if places else (0, 0)
