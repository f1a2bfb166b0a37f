"""Simple recurrent layers with the activation inside the recurrence, as the published text has."""

from __future__ import annotations

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sparing.predictors._parts import activation, check_counts, dense, dropout, recurrent


class Recurrence(nn.Module):
    """One layer of ``units``; ``activation_name`` prelu has a slope a unit, the same at every step.

    Formula: h_t = s(W_xh x_t + W_hh h_(t-1) + b_h), from h_0 = 0.

    Symbols: s is the activation. W_hh is orthogonal at first.
    """

    def __init__(self, inputs: int, units: int, activation_name: str) -> None:
        super().__init__()
        self.input = dense(inputs, units)
        self.recurrent = recurrent(units, units)
        self.activation = activation(activation_name, units)

    def forward(self, x: Float[Tensor, "batch slots inputs"]) -> Float[Tensor, "batch slots units"]:
        """The hidden states of every step."""
        entering = self.input(x)
        hidden = torch.zeros_like(entering[:, 0])
        states = []
        for step in entering.unbind(1):
            hidden = self.activation(step + self.recurrent(hidden))
            states.append(hidden)
        return torch.stack(states, 1)


class Network(nn.Module):
    """``layers`` recurrences of ``units``, one value a step, and one number from the last state.

    Two layers of 269 are RNN2 with the recurrence of the text: 218,698 weights.

    Source: Mukin, A Predictive Calculator (2025), section 1.1. The printed RNN2 is of the published
    code, with tanh in the recurrence (``simple_rnn``). ``dropout_share`` of the units that a layer
    passes on are dropped.
    """

    any_length: ClassVar[bool] = True

    def __init__(
        self,
        *,
        units: int = 269,
        layers: int = 2,
        activation_name: str = "prelu",
        dropout_share: float = 0.0,
    ) -> None:
        super().__init__()
        check_counts("activated_rnn", units=units, layers=layers)
        self.recurrences = nn.ModuleList(
            Recurrence(units if n else 1, units, activation_name) for n in range(layers)
        )
        self.dropout = dropout("activated_rnn", dropout_share)
        self.output = dense(units, 1)

    def forward(self, values: Float[Tensor, "batch slots"]) -> Float[Tensor, " batch"]:
        """The predictions, for any number of slots."""
        states = values[:, :, None]
        for recurrence in self.recurrences:
            states = self.dropout(recurrence(states))
        answers: Tensor = self.output(states[:, -1])
        return answers[:, 0]
