"""Pairs of texts that are scored by how alike their vectors are."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor


@dataclass(frozen=True)
class Compared:
    """Pairs of a split's texts by their numbers, and what their likeness is scored against."""

    rows: Int[Tensor, "pairs 2"]
    truth: Shaped[Tensor, "pairs ..."]

    def cosines(self, vectors: Float[Tensor, "texts dimensions"]) -> Float[Tensor, "pairs 1"]:
        """The cosine of both vectors of each pair."""
        first, second = (vectors[self.rows[:, side]].double() for side in (0, 1))
        return torch.cosine_similarity(first, second)[:, None]
