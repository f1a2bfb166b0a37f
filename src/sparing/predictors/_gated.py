"""Gated recurrences: one network for LSTM and GRU."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from sparing.predictors._parts import activation, check_counts, dense, dropout, one_bias


class GatedNetwork(nn.Module):
    """A stack of gated recurrent layers over the slots, and one number from the last state."""

    def __init__(
        self, name: str, units: int, layers: int, activation_name: str, dropout_share: float
    ) -> None:
        super().__init__()
        check_counts(name, units=units, layers=layers)
        kind = {"lstm": nn.LSTM, "gru": nn.GRU}[name]
        self.recurrences = nn.ModuleList(
            one_bias(kind(1 if not n else units, units, batch_first=True), forget=name == "lstm")
            for n in range(layers)
        )
        self.activation = activation(activation_name, units)
        self.dropout = dropout(name, dropout_share)
        self.output = dense(units, 1)

    def forward(self, values: Float[Tensor, "batch slots"]) -> Float[Tensor, " batch"]:
        """The predictions."""
        states = values[:, :, None]
        for recurrence in self.recurrences:
            states, _ = recurrence(self.dropout(states) if states.shape[-1] > 1 else states)
        answers: Tensor = self.output(self.activation(states[:, -1]))
        return answers[:, 0]
