"""Heads and neurons in order of importance, so that a plan keeps the first of them."""

from __future__ import annotations

import torch
from jaxtyping import Int
from torch import Tensor

from sparing.core.errors import UsageError
from sparing.layers.elastic import ElasticLayer
from sparing.transfer.adaptive import AdaptiveClassifier
from sparing.transfer.importance import Importance


@torch.no_grad()
def order_by_importance(model: AdaptiveClassifier, importance: Importance) -> None:
    """Sort every layer's heads and neurons in place, the most important first.

    The whole model's output does not change. ``importance`` is that of the dense model that the
    adaptive form was made from, before any other ordering. Raises ``UsageError`` for another
    model's importance.
    """
    layers: list[ElasticLayer] = list(model.encoder.layers)  # type: ignore[arg-type]
    sizes = [(layer.sizes.heads, layer.sizes.neurons) for layer in layers]
    have = [(importance.heads.shape[1], importance.neurons.shape[1])] * len(importance.heads)
    if sizes != have:
        raise UsageError(f"importance of layers {have} does not fit a model of layers {sizes}")
    for number, layer in enumerate(layers):
        reorder_heads(layer, importance.heads[number].argsort(descending=True, stable=True))
        reorder_neurons(layer, importance.neurons[number].argsort(descending=True, stable=True))


@torch.no_grad()
def reorder_heads(layer: ElasticLayer, order: Int[Tensor, " heads"]) -> None:
    """Put a layer's heads into another order, in place; ``order`` holds their present numbers."""
    heads = layer.sizes.heads
    for rows in (layer.projection.weight, layer.projection.bias):
        rows.copy_(rows.view(heads, -1, *rows.shape[1:])[order].flatten(0, 1))
    for table in layer.distances.parameters():
        table.copy_(table[order])
    columns = layer.output.weight
    columns.copy_(columns.view(len(columns), heads, -1)[:, order].flatten(1, 2))


@torch.no_grad()
def reorder_neurons(layer: ElasticLayer, order: Int[Tensor, " neurons"]) -> None:
    """Put a layer's feed-forward neurons into another order, in place."""
    for rising in (layer.rise, layer.gate):
        if rising is not None:
            rising.weight.copy_(rising.weight[order])
            rising.bias.copy_(rising.bias[order])
    layer.fall.weight.copy_(layer.fall.weight[:, order])
