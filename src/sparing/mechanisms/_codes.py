"""Hash bits learned one after the other, so that related tokens share them."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

_STEP = 0.05
_MOMENTUM = 0.9


def pair_labels(
    tokens: Float[Tensor, "tokens dim"], neighbours: int
) -> Float[Tensor, "tokens tokens"]:
    """1 for each token's nearest ``neighbours``, -1 for its farthest, 0 for all others."""
    similarities = tokens @ tokens.t()
    count = min(neighbours, max(1, len(tokens) // 2))
    labels = torch.zeros_like(similarities)
    labels.scatter_(1, similarities.topk(count, 1, largest=False).indices, -1.0)
    labels.scatter_(1, similarities.topk(count, 1).indices, 1.0)
    return (labels + labels.t()).clamp(-1, 1)


def learned_bits(
    kernels: Float[Tensor, "tokens anchors"],
    labels: Float[Tensor, "tokens tokens"],
    bits: int,
    steps: int,
) -> Float[Tensor, "bits anchors"]:
    """Directions a_r: their signs h_r = sign(kernels a_r) bring sum_r h_r h_r^T near bits x labels.

    Pairs with the label 0 are free. Each bit fits the residual of the bits before it. It starts
    from the leading eigenvector of kernels^T residual kernels and climbs from there, with tanh for
    the sign. Of the two, the one that is better with true signs is used.
    """
    residual = bits * labels
    directions = []
    for _ in range(bits):
        start = _leading(kernels, residual)
        climbed = _climbed(kernels, residual, start, steps)
        best = max((start, climbed), key=lambda one: _agreement(kernels, residual, one))
        directions.append(best)
        signs = hard_signs(kernels @ best)
        residual = residual - torch.outer(signs, signs) * labels.abs()
    return torch.stack(directions)


def hard_signs(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """1 where x is at least zero, -1 elsewhere: never 0, as torch.sign may be."""
    return torch.where(x >= 0, 1.0, -1.0).to(x.dtype)


def _leading(kernels: Tensor, residual: Tensor) -> Tensor:
    """The eigenvector of the largest eigenvalue, with a fixed sign and length."""
    vector = torch.linalg.eigh(kernels.t() @ residual @ kernels).eigenvectors[:, -1]
    return _scaled(kernels, vector * hard_signs(vector[vector.abs().argmax()]))


def _scaled(kernels: Tensor, direction: Tensor) -> Tensor:
    """Signs do not depend on the length: products of about one suit tanh and its slope."""
    size = (kernels @ direction).square().mean().sqrt()
    return direction / size if size > 0 else direction


def _climbed(kernels: Tensor, residual: Tensor, start: Tensor, steps: int) -> Tensor:
    """Nesterov's ascent on tanh(kernels a)^T residual tanh(kernels a), in steps of one length."""
    direction, speed = start, torch.zeros_like(start)
    for _ in range(steps):
        soft = (kernels @ (direction + _MOMENTUM * speed)).tanh()
        slope = kernels.t() @ ((residual @ soft) * (1 - soft.square()))
        length = slope.norm()
        if length == 0:
            break
        speed = _MOMENTUM * speed + (_STEP * (1 - _MOMENTUM)) * start.norm() * slope / length
        direction = direction + speed
    return _scaled(kernels, direction)


def _agreement(kernels: Tensor, residual: Tensor, direction: Tensor) -> float:
    signs = hard_signs(kernels @ direction)
    return float(signs @ residual @ signs)
