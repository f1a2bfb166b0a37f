"""The dense model's weights in an adaptive form's order: heads together, tensor by tensor."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import PreTrainedModel

from sparing.layers.elastic import ElasticLayer
from sparing.layers.encoder import AdaptiveEncoder
from sparing.layers.vectors import VectorHead
from sparing.transfer.blocks import Block
from sparing.transfer.families.dense import require_classifier as require_classifier
from sparing.transfer.families.form import Family, bias_of, copy_affine
from sparing.transfer.families.known import family_of


@torch.no_grad()
def fill(embeddings: nn.Module, encoder: AdaptiveEncoder, dense: PreTrainedModel) -> None:
    """Copy all weights into an adaptive form's parts; exit heads begin as the model's own."""
    family = family_of(dense.config)
    base = family.base(dense)
    family.fill_embeddings(embeddings, base)
    parts = zip(encoder.layers, family.blocks(dense), family.layers_of(dense), strict=True)
    for number, (layer, block, home) in enumerate(parts):
        assert isinstance(layer, ElasticLayer)
        _fill_layer(layer, block, home, family)
        family.fill_distances(layer, dense, number)
    for head in encoder.heads.values():
        if isinstance(head, VectorHead):  # its own layer begins as the identity
            if head.norm is not None:
                copy_affine(head.norm, base.get_submodule(family.final_norm))
            continue
        family.fill_body(head, dense)
        answer = getattr(head.form, "answer", "")
        names = {"entities": family.token_classifier, "span": family.span_classifier}
        copy_affine(head.classifier, dense.get_submodule(names.get(answer, family.classifier)))


def _fill_layer(layer: ElasticLayer, block: Block, home: nn.Module, family: Family) -> None:
    projections = [(block.projections[stream], block.rows_of(stream)) for stream in "qkv"]
    weights = [linear.weight[rows] for linear, rows in projections]
    biases = [bias_of(linear)[rows] for linear, rows in projections]
    heads, neurons = layer.sizes.heads, layer.sizes.neurons
    layer.projection.weight.copy_(interleave(weights, heads))
    layer.projection.bias.copy_(interleave(biases, heads))
    rising, bias = block.rise.weight, bias_of(block.rise)
    layer.rise.weight.copy_(rising[:neurons])
    layer.rise.bias.copy_(bias[:neurons])
    if layer.gate is not None:
        layer.gate.weight.copy_(rising[neurons:])
        layer.gate.bias.copy_(bias[neurons:])
    copy_affine(layer.output, block.output)
    copy_affine(layer.fall, block.fall)
    if not isinstance(layer.attention_norm, nn.Identity):
        copy_affine(layer.attention_norm, home.get_submodule(family.attention_norm))
    copy_affine(layer.feed_forward_norm, home.get_submodule(family.feed_forward_norm))


def interleave(
    streams: Sequence[Float[Tensor, "rows ..."]], heads: int
) -> Float[Tensor, "all_rows ..."]:
    """Rows of queries, keys and values, head by head: the three parts of a head are adjacent."""
    by_head = [rows.view(heads, -1, *rows.shape[1:]) for rows in streams]
    return torch.cat(by_head, 1).flatten(0, 1)
