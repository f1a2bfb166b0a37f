"""The transformer encoder for regression, with any mechanism as its attention."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from sparing.predictors._encoder import EncoderLayer
from sparing.predictors._parts import SLOTS, check_counts, dense, dropout, positions


class Network(nn.Module):
    """Each slot's value spread over ``width`` features, layers, and one number from slot 0.

    ``width`` 32, 3 layers and 128 inner features have the 38,209 weights of the published
    transformer4; 64, 6 and 512 the 498,241 of transformer5. ``mechanism`` and its options replace
    softmax attention. As published, absent slots are not masked.

    Source: Mukin, A Predictive Calculator (2025), section 3, after Vaswani et al., 2017, arXiv
    1706.03762.
    """

    positions: Tensor

    def __init__(
        self,
        *,
        width: int = 32,
        layers: int = 3,
        heads: int = 8,
        feed_forward: int = 128,
        mechanism: str = "softmax",
        mechanism_options: Mapping[str, Any] | None = None,
        positions_added: bool = True,
        dropout_share: float = 0.0,
    ) -> None:
        super().__init__()
        check_counts("transformer", layers=layers)
        given = mechanism_options or {}
        self.embedding = dense(1, width)
        self.register_buffer("positions", positions(SLOTS, width), persistent=False)
        self.positions_added = positions_added
        self.dropout = dropout("transformer", dropout_share)
        self.layers = nn.ModuleList(
            EncoderLayer(width, heads, feed_forward, SLOTS, mechanism, given, dropout_share)
            for _ in range(layers)
        )
        self.output = dense(width, 1)

    def forward(self, values: Float[Tensor, "batch slots"]) -> Float[Tensor, " batch"]:
        """The predictions."""
        states: Tensor = self.embedding(values[:, :, None])
        if self.positions_added:
            states = states + self.positions.to(states)
        states = self.dropout(states)
        for layer in self.layers:
            states = layer(states)
        answers: Tensor = self.output(states[:, 0])
        return answers[:, 0]
