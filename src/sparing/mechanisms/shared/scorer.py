"""Scores between 0 and 1 for every head: how much of it an input, or a token, needs."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from sparing.mechanisms.shared.arithmetic import wide


class Scorer(nn.Module):
    """A small network from a token's features to one number for each head, before the sigmoid.

    Two hidden layers of ``hidden`` units with GELU. Weights come from ``generator``, distributed as
    in PyTorch's linear layers. Biases are 0 except the last, which makes scores start about
    ``start``.
    """

    def __init__(
        self, width: int, hidden: int, heads: int, start: float, generator: torch.Generator
    ) -> None:
        super().__init__()
        sizes = ((width, hidden), (hidden, hidden), (hidden, heads))
        self.weights = nn.ParameterList(_drawn(*size, generator) for size in sizes)
        self.biases = nn.ParameterList(
            nn.Parameter(torch.full((after,), bias, device="cpu"))
            for (_, after), bias in zip(sizes, (0.0, 0.0, logit(start)), strict=True)
        )

    def forward(self, x: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch heads"]:
        """The scores, in float32 at least, since widths are cut by them."""
        hidden, last = wide(x), len(self.weights) - 1
        for index, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            hidden = F.linear(hidden, weight.to(hidden.dtype), bias.to(hidden.dtype))
            hidden = hidden.sigmoid() if index == last else F.gelu(hidden)
        return hidden

    def flops(self, rows: int) -> int:
        """FLOPs of the products for ``rows`` rows; a multiply-add counts as 2."""
        numbers: int = sum(weight.numel() for weight in self.weights)
        return 2 * rows * numbers


def logit(score: float) -> float:
    """The inverse of the sigmoid at ``score``."""
    return math.log(score / (1 - score))


def mean_of_real(
    values: Float[Tensor, "batch tokens features"], keep: Bool[Tensor, "batch tokens"] | None
) -> Float[Tensor, "batch 1 features"]:
    """The mean over each row's real tokens; 0 for a row that has none."""
    if keep is None:
        return values.mean(1, keepdim=True)
    total = values.where(keep[:, :, None], 0).sum(1, keepdim=True)
    return total / keep.sum(1).clamp(min=1)[:, None, None]


def _drawn(before: int, after: int, generator: torch.Generator) -> nn.Parameter:
    uniform = torch.rand(after, before, generator=generator, device="cpu")
    return nn.Parameter((uniform * 2 - 1) / math.sqrt(before))
