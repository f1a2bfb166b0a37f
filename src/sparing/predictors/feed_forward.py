"""The feed-forward network (FNN): the published winner, with and without positions."""

from __future__ import annotations

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor, nn

from sparing.predictors._parts import (
    SLOTS,
    activation,
    check_counts,
    dense,
    dropout,
    positions,
)


class Network(nn.Module):
    """Hidden layers over the slots side by side, and one number.

    ``hidden`` are the sizes of the layers: (345,) has the 6,211 weights of the published FNN2,
    (494,) with ``positions_added`` the 8,893 of FNN3. Positions are one sine a slot, added to the
    values. Since the first layer has a bias, W (x + p) + b = W x + (b + W p). So the network can
    compute the same functions without positions.

    Source: Mukin, A Predictive Calculator (2025), sections 0.4 and 5, and its published code.
    """

    positions: Tensor

    def __init__(
        self,
        *,
        hidden: Sequence[int] = (345,),
        activation_name: str = "prelu",
        dropout_share: float = 0.0,
        positions_added: bool = False,
    ) -> None:
        super().__init__()
        check_counts("feed_forward", **{f"hidden[{n}]": size for n, size in enumerate(hidden)})
        layers: list[nn.Module] = []
        inputs = SLOTS
        for size in hidden:
            layers += [dense(inputs, size), activation(activation_name, size)]
            layers += [dropout("feed_forward", dropout_share)] if dropout_share else []
            inputs = size
        self.layers = nn.Sequential(*layers, dense(inputs, 1))
        self.positions_added = positions_added
        self.register_buffer("positions", positions(SLOTS, 1)[:, 0], persistent=False)

    def forward(self, values: Float[Tensor, "batch slots"]) -> Float[Tensor, " batch"]:
        """The predictions."""
        given = values + self.positions.to(values) if self.positions_added else values
        answers: Tensor = self.layers(given)
        return answers[:, 0]
