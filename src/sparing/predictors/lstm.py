"""Long short-term memory over the slots."""

from __future__ import annotations

from sparing.predictors._gated import GatedNetwork


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
        super().__init__("lstm", units, layers, activation_name, dropout_share)
