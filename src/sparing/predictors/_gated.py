"""Gated recurrences: one network for LSTM and both GRUs."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor, nn

from sparing.predictors._parts import activation, check_counts, dense, dropout


class GatedNetwork(nn.Module):
    """A stack of gated recurrent layers over the slots, and one number from the last state.

    ``layer`` builds one from its inputs and units; called, it gives all states and the last ones.
    ``dropout_share`` of the units that a layer passes on are dropped.
    """

    any_length: ClassVar[bool] = True

    def __init__(
        self,
        name: str,
        layer: Callable[[int, int], nn.Module],
        units: int,
        layers: int,
        activation_name: str,
        dropout_share: float,
    ) -> None:
        super().__init__()
        check_counts(name, units=units, layers=layers)
        self.recurrences = nn.ModuleList(layer(units if n else 1, units) for n in range(layers))
        self.activation = activation(activation_name, units)
        self.dropout = dropout(name, dropout_share)
        self.output = dense(units, 1)

    def forward(self, values: Float[Tensor, "batch slots"]) -> Float[Tensor, " batch"]:
        """The predictions, for any number of slots."""
        states = values[:, :, None]
        for recurrence in self.recurrences:
            states, _ = recurrence(states)
            states = self.dropout(states)
        answers: Tensor = self.output(self.activation(states[:, -1]))
        return answers[:, 0]
