"""Numbers as one direction of the embedding, scaled by their value (xVal)."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sparing.predictors._encoder import EncoderLayer
from sparing.predictors._parts import SLOTS, check_counts, dense, positions, present

NUMBER, PLUS, MINUS, ABSENT_TOKEN, CLASS = range(5)


class Network(nn.Module):
    """A transformer over numbers as one embedding times their value; one number from a token.

    Numbers are divided by ``largest``, so that those of training are in the published range of -5
    to 5. Operators, missing parts, and the token that is read have their own embeddings.

    Source: Golkar et al., 2023, arXiv 2310.02989, section 2. What differs: an encoder with one
    number to predict, without masking.
    """

    positions: Tensor

    def __init__(
        self,
        *,
        width: int = 32,
        layers: int = 3,
        heads: int = 4,
        feed_forward: int = 128,
        largest: float = 1.0,
    ) -> None:
        super().__init__()
        check_counts("xval", layers=layers)
        self.largest = largest
        self.embedding = nn.Embedding(5, width)
        nn.init.normal_(self.embedding.weight, std=width**-0.5)
        self.register_buffer("positions", positions(SLOTS + 1, width), persistent=False)
        self.layers = nn.ModuleList(
            EncoderLayer(width, heads, feed_forward, SLOTS + 1, "softmax", {}, 0.0)
            for _ in range(layers)
        )
        self.output = dense(width, 1)

    def forward(self, values: Float[Tensor, "batch slots"]) -> Float[Tensor, " batch"]:
        """The predictions."""
        kinds, scale = self._tokens(values)
        states = self.embedding(kinds) * scale[:, :, None] + self.positions.to(values)
        for layer in self.layers:
            states = layer(states)
        answers: Tensor = self.output(states[:, 0])
        return answers[:, 0]

    def _tokens(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """The kind of each token, and the factor of its embedding."""
        here = present(values)
        number = torch.arange(values.shape[1], device=values.device) % 2 == 0
        operator = torch.where(values == 1, PLUS, MINUS)
        kinds = torch.where(number, torch.full_like(operator, NUMBER), operator)
        kinds = torch.where(here, kinds, ABSENT_TOKEN)
        scale = torch.where(here & number, values / self.largest, 1.0)
        first = torch.full_like(kinds[:, :1], CLASS)
        return torch.cat([first, kinds], 1), torch.cat([torch.ones_like(scale[:, :1]), scale], 1)
