"""A transformer's encoder layer, with any mechanism as its attention."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sparing.core.recording import is_logged, report
from sparing.layers.attention import Attention
from sparing.predictors._parts import activation, check_counts, dense, dropout


class EncoderLayer(nn.Module):
    """Attention and a feed-forward network, each with a residual and a norm behind it.

    Source: Vaswani et al., 2017, arXiv 1706.03762, section 3.1: norms come after the sums.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        inner: int,
        tokens: int,
        mechanism: str,
        options: Mapping[str, Any],
        dropout_share: float,
    ) -> None:
        super().__init__()
        check_counts("transformer", width=width, heads=heads, feed_forward=inner)
        self.attention = attention(width, heads, tokens, mechanism, options)
        self.inner = nn.Sequential(
            dense(width, inner), activation("relu", inner), dense(inner, width)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width, eps=1e-6) for _ in range(2))
        self.dropout = dropout("transformer", dropout_share)

    def forward(
        self, x: Float[Tensor, "batch tokens width"]
    ) -> Float[Tensor, "batch tokens width"]:
        """The next layer's input; softmax weights are reported as ``attention``."""
        if shows_weights(self, self.attention):
            report(self, "attention", softmax_weights(self.attention, x))
        x = self.norms[0](x + self.dropout(self.attention(x)))
        states: Tensor = self.norms[1](x + self.dropout(self.inner(x)))
        return states


def attention(
    width: int, heads: int, tokens: int, mechanism: str, options: Mapping[str, Any]
) -> Attention:
    """Attention with Keras's initial weights."""
    layer = Attention(width, heads, mechanism, tokens=tokens, **options)
    for name in ("q", "k", "v", "output"):
        projection = getattr(layer, f"{name}_projection")
        nn.init.xavier_uniform_(projection.weight)
        nn.init.zeros_(projection.bias)
    return layer


def shows_weights(module: nn.Module, layer: Attention) -> bool:
    """Whether an open log needs softmax weights written out; training is not slowed for a log."""
    softmax = type(layer.mechanism).__module__.endswith(".softmax")
    return softmax and not module.training and is_logged(module)


@torch.no_grad()
def softmax_weights(
    layer: Attention, x: Float[Tensor, "batch tokens width"]
) -> Float[Tensor, "batch heads tokens tokens"]:
    """The weights of softmax attention, written out."""
    shape = layer.mechanism.heads

    def split(projected: Tensor) -> Tensor:
        parts = projected.view(*projected.shape[:2], shape.count, shape.dim)
        return parts.transpose(1, 2)

    q, k = split(layer.q_projection(x)), split(layer.k_projection(x))
    weights: Tensor = (q @ k.transpose(2, 3) / shape.dim**0.5).softmax(-1)
    return weights
