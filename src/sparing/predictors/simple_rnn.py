"""Simple recurrent layers (Elman): the published RNN2."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from sparing.predictors._parts import (
    SLOTS,
    activation,
    check_counts,
    dense,
    dropout,
    one_bias,
)


class Network(nn.Module):
    """``layers`` simple recurrences of ``units``, one value a step, and one number at the end.

    Every layer is followed by its activation; slopes of layers that pass on all their steps are
    separate for each step. Two layers of 269 have the 222,464 weights of the published RNN2.

    Source: Mukin, A Predictive Calculator (2025), section 1; Elman, 1990. What differs: the text
    writes PReLU for the recurrence itself; the published code has tanh there, Keras's default, and
    PReLU behind the layer, and so does this. ``activated_rnn`` is that of the text.
    """

    def __init__(
        self,
        *,
        units: int = 269,
        layers: int = 2,
        activation_name: str = "prelu",
        dropout_share: float = 0.0,
    ) -> None:
        super().__init__()
        check_counts("simple_rnn", units=units, layers=layers)
        sizes = [1, *[units] * (layers - 1)]
        self.recurrences = nn.ModuleList(
            one_bias(nn.RNN(size, units, batch_first=True)) for size in sizes
        )
        shapes = [(SLOTS, units)] * (layers - 1) + [(units,)]
        self.activations = nn.ModuleList(activation(activation_name, *shape) for shape in shapes)
        self.dropout = dropout("simple_rnn", dropout_share)
        self.output = dense(units, 1)

    def forward(self, values: Float[Tensor, "batch slots"]) -> Float[Tensor, " batch"]:
        """The predictions."""
        states = values[:, :, None]
        for number, (recurrence, active) in enumerate(
            zip(self.recurrences, self.activations, strict=True), 1
        ):
            states, _ = recurrence(states)
            if number == len(self.recurrences):
                states = states[:, -1]
            states = self.dropout(active(states))
        answers: Tensor = self.output(states)
        return answers[:, 0]
