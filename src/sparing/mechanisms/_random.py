"""Random directions from a private generator that is saved with them."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn


class Directions(nn.Module):
    """``count`` random vectors of ``dim`` numbers, and the generator of the next ones.

    By default each is normal with variance one. ``orthogonal`` makes each group of ``dim`` vectors
    orthogonal, with the lengths of normal vectors. ``equal`` gives all of them the length
    sqrt(dim). The generator's state is a buffer too: a restored model samples the same vectors.
    """

    def __init__(self, count: int, dim: int, *, seed: int, orthogonal: bool, equal: bool) -> None:
        super().__init__()
        self.orthogonal = orthogonal
        self.equal = equal
        self.rows: Tensor
        self.generator_state: Tensor
        self.register_buffer("rows", torch.empty(count, dim))
        state = torch.Generator().manual_seed(seed).get_state()
        self.register_buffer("generator_state", state)
        self.redraw()

    @torch.no_grad()
    def redraw(self) -> None:
        """Replace the vectors by the next ones, in place."""
        generator = torch.Generator()
        generator.set_state(self.generator_state.cpu())
        count, dim = self.rows.shape
        drawn = _normal(count, dim, generator)
        lengths = drawn.norm(dim=1, keepdim=True)
        if self.orthogonal:
            turns = [_rotation(dim, generator) for _ in range(0, count, dim)]
            drawn = torch.cat(turns)[:count] * lengths
        if self.equal:
            drawn = drawn * (math.sqrt(dim) / drawn.norm(dim=1, keepdim=True))
        self.rows.copy_(drawn)
        self.generator_state.copy_(generator.get_state())


def _normal(count: int, dim: int, generator: torch.Generator) -> Float[Tensor, "count dim"]:
    return torch.randn(count, dim, generator=generator, dtype=torch.float64, device="cpu")


def _rotation(dim: int, generator: torch.Generator) -> Float[Tensor, "dim dim"]:
    """Uniform over all rotations and reflections: QR's signs alone would favour some."""
    turn, upper = torch.linalg.qr(_normal(dim, dim, generator))
    uniform: Tensor = turn * upper.diagonal().sign()
    return uniform
