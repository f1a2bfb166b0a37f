"""Gated recurrent units over the slots."""

from __future__ import annotations

from torch import nn

from sparing.predictors._gated import GatedNetwork
from sparing.predictors._parts import one_bias


def _layer(inputs: int, units: int) -> nn.RNNBase:
    return one_bias(nn.GRU(inputs, units, batch_first=True))


class Network(GatedNetwork):
    """``layers`` of ``units``, one value a step, and one number from the last state.

    Source: Cho et al., 2014, arXiv 1406.1078; Mukin, A Predictive Calculator (2025), section 2: the
    published text describes it without a measurement. What differs: here, as in PyTorch, the reset
    gate multiplies W h; the text's multiplies h (``reset_first_gru``).
    """

    def __init__(
        self,
        *,
        units: int = 64,
        layers: int = 1,
        activation_name: str = "linear",
        dropout_share: float = 0.0,
    ) -> None:
        super().__init__("gru", _layer, units, layers, activation_name, dropout_share)
