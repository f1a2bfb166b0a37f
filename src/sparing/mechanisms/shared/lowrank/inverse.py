"""The inverse of a matrix by a few steps of products."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


def inverse_steps(
    matrix: Float[Tensor, "batch rows columns"],
    guess: Float[Tensor, "batch columns rows"],
    steps: int,
) -> Float[Tensor, "batch columns rows"]:
    """``guess`` after steps Z <- Z (13 - A Z (15 - A Z (7 - A Z))) / 4."""
    for _ in range(steps):
        # The formula is multiplied out: no identity is built and each step is one product.
        product = matrix @ guess
        step = torch.baddbmm(product, product, product, beta=7, alpha=-1)
        step = torch.baddbmm(product, product, step, beta=15, alpha=-1)
        guess = torch.baddbmm(guess, guess, step, beta=13 / 4, alpha=-1 / 4)
    return guess
