"""Two weights, the same for every number, that solve the published task: the printed baseline."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sparing.predictors._parts import operands


class Network(nn.Module):
    """The sum over numbers of (w_0 + w_1 c_t) x_t, with the code c_t of the operator before each.

    Least squares (``solve``) gives -1 and 2: right for every sum, of any length. A missing part
    then adds nothing. This shows how easy the input's form makes the task, not the ability of a
    network.
    """

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(2))

    def forward(self, values: Float[Tensor, "batch slots"]) -> Float[Tensor, " batch"]:
        """The predictions."""
        return self.features(values) @ self.weight

    def features(self, values: Float[Tensor, "batch slots"]) -> Float[Tensor, "batch 2"]:
        """The features of the two weights."""
        numbers, codes = operands(values)
        return torch.stack([numbers.sum(1), (codes * numbers).sum(1)], 1)

    @torch.no_grad()
    def solve(self, values: Float[Tensor, "batch slots"], truth: Float[Tensor, " batch"]) -> None:
        """Take the weights of least squares, in float64."""
        fit = torch.linalg.lstsq(self.features(values.double()), truth.double()[:, None])
        self.weight.copy_(fit.solution[:, 0])
