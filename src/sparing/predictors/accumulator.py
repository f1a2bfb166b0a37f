"""Neural accumulators: weights that are pulled towards -1, 0 and 1, the same for every number."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sparing.core.errors import require_choice
from sparing.core.recording import report
from sparing.predictors._parts import operands

KINDS = ("nau", "nac")


class Network(nn.Module):
    """A running sum of each number, weighted by the weight of the operator before it.

    Formula: h_t = h_(t-1) + w_1 c_t x_t + w_2 (1 - c_t) x_t, with the codes c_t (1 for +, 0 for -).

    Symbols: w = tanh(a) sigmoid(b) for "nac". For "nau" w is held within [-1, 1], and the mean of
    min(|w|, 1 - |w|) is reported as ``auxiliary_loss``. The solution is w_1 = 1 and w_2 = -1; then
    a missing part (0.5 with the code 0.5) adds nothing.

    Source: Trask et al., 2018, arXiv 1808.00508, equation 1; Madsen and Johansen, 2020, arXiv
    2001.05016, equations 4 to 6. What differs: the operators choose the weight, since an
    accumulator alone cannot multiply a number by its operator's code.
    """

    def __init__(self, *, kind: str = "nau") -> None:
        super().__init__()
        require_choice("accumulator", "kind", kind, KINDS)
        self.kind = kind
        self.weight = nn.Parameter(torch.empty(2).uniform_(-0.5, 0.5))
        if kind == "nac":
            self.gate = nn.Parameter(torch.empty(2).uniform_(-0.5, 0.5))

    def weights(self) -> Float[Tensor, " 2"]:
        """The weights of + and -."""
        if self.kind == "nac":
            return self.weight.tanh() * self.gate.sigmoid()
        return self.weight.clamp(-1, 1)

    def forward(self, values: Float[Tensor, "batch slots"]) -> Float[Tensor, " batch"]:
        """The predictions."""
        weight = self.weights()
        if self.kind == "nau":
            size = weight.abs()
            report(self, "auxiliary_loss", torch.minimum(size, 1 - size).mean())
        numbers, codes = operands(values)
        return ((weight[0] * codes + weight[1] * (1 - codes)) * numbers).sum(1)
