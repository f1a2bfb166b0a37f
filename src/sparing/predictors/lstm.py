"""Long short-term memory over the slots."""

from __future__ import annotations

from torch import nn

from sparing.predictors._gated import GatedNetwork
from sparing.predictors._parts import one_bias


def _layer(inputs: int, units: int) -> nn.RNNBase:
    return one_bias(nn.LSTM(inputs, units, batch_first=True), forget=True)


class Network(GatedNetwork):
    """``layers`` of ``units``, one value a step, and one number from the last state.

    Source: Hochreiter and Schmidhuber, 1997, doi 10.1162/neco.1997.9.8.1735; Mukin, A Predictive
    Calculator (2025), section 2: a published table has none without attention.
    """

    def __init__(
        self,
        *,
        units: int = 64,
        layers: int = 1,
        activation_name: str = "linear",
        dropout_share: float = 0.0,
    ) -> None:
        super().__init__("lstm", _layer, units, layers, activation_name, dropout_share)
