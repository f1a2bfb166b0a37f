"""A feed-forward network behind one layer of attention: the proposal of the published study."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from sparing.core.recording import report
from sparing.predictors._encoder import attention, shows_weights, softmax_weights
from sparing.predictors._parts import SLOTS, activation, check_counts, dense, positions


class Network(nn.Module):
    """Attention over embedded slots, added to them; then a hidden layer over all of it.

    Source: the proposal of Mukin, A Predictive Calculator (2025), section 6.5, which gives no
    sizes: these have 32,225 weights.
    """

    positions: Tensor

    def __init__(
        self,
        *,
        width: int = 16,
        heads: int = 2,
        hidden: int = 128,
        mechanism: str = "softmax",
        mechanism_options: Mapping[str, Any] | None = None,
        activation_name: str = "prelu",
    ) -> None:
        super().__init__()
        check_counts("attention_feed_forward", width=width, heads=heads, hidden=hidden)
        self.embedding = dense(1, width)
        self.register_buffer("positions", positions(SLOTS, width), persistent=False)
        self.attention = attention(width, heads, SLOTS, mechanism, mechanism_options or {})
        self.hidden = dense(SLOTS * width, hidden)
        self.activation = activation(activation_name, hidden)
        self.output = dense(hidden, 1)

    def forward(self, values: Float[Tensor, "batch slots"]) -> Float[Tensor, " batch"]:
        """The predictions; softmax weights are reported as ``attention``."""
        states = self.embedding(values[:, :, None])
        states = states + self.positions.to(states)
        if shows_weights(self, self.attention):
            report(self, "attention", softmax_weights(self.attention, states))
        states = states + self.attention(states)
        answers: Tensor = self.output(self.activation(self.hidden(states.flatten(1))))
        return answers[:, 0]
