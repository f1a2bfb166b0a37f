"""Gated recurrent units with the reset gate inside the product, as the published text has them."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sparing.predictors._gated import GatedNetwork
from sparing.predictors._parts import dense, recurrent


class Recurrence(nn.Module):
    """One layer of ``units``.

    Formula: z_t = sigmoid(W_z [h_(t-1), x_t] + b_z), r_t = sigmoid(W_r [h_(t-1), x_t] + b_r),
    n_t = tanh(W_h [r_t h_(t-1), x_t] + b_h), h_t = (1 - z_t) h_(t-1) + z_t n_t, from h_0 = 0.

    Symbols: rows of ``input`` and ``recurrent`` are those of z, r and n, in this order.
    """

    def __init__(self, inputs: int, units: int) -> None:
        super().__init__()
        self.units = units
        self.input = dense(inputs, 3 * units)
        self.recurrent = recurrent(units, 3 * units)

    def forward(
        self, x: Float[Tensor, "batch slots inputs"]
    ) -> tuple[Float[Tensor, "batch slots units"], Float[Tensor, "batch units"]]:
        """The hidden states of every step, and the last one."""
        entering = self.input(x)
        gates = 2 * self.units
        of_gates, of_new = self.recurrent.weight[:gates], self.recurrent.weight[gates:]
        hidden = torch.zeros_like(entering[:, 0, : self.units])
        states = []
        for step in entering.unbind(1):
            update, reset = (step[:, :gates] + hidden @ of_gates.T).sigmoid().chunk(2, -1)
            new = (step[:, gates:] + (reset * hidden) @ of_new.T).tanh()
            hidden = (1 - update) * hidden + update * new
            states.append(hidden)
        return torch.stack(states, 1), hidden


class Network(GatedNetwork):
    """``layers`` of ``units``, one value a step, and one number from the last state.

    Source: Mukin, A Predictive Calculator (2025), equations 7 to 10; Cho et al., 2014, arXiv
    1406.1078. The ``gru`` of this folder is PyTorch's: its reset gate multiplies W h, not h.
    """

    def __init__(
        self,
        *,
        units: int = 64,
        layers: int = 1,
        activation_name: str = "linear",
        dropout_share: float = 0.0,
    ) -> None:
        super().__init__(
            "reset_first_gru", Recurrence, units, layers, activation_name, dropout_share
        )
