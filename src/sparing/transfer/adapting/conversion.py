"""The dense model's weights in an adaptive form's order: heads together, tensor by tensor."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import PreTrainedModel

from sparing.layers.elastic import ElasticLayer
from sparing.layers.encoder import AdaptiveEncoder, ExitHead
from sparing.layers.tokens import TokenHead
from sparing.transfer.blocks import Block, find_blocks
from sparing.transfer.families import Family, NormedEmbeddings, family_of
from sparing.transfer.families import require_classifier as require_classifier

# Where all families have the layer behind each token.
TOKEN_HEADS = {"entities": "classifier", "span": "qa_outputs"}


@torch.no_grad()
def fill(embeddings: nn.Module, encoder: AdaptiveEncoder, dense: PreTrainedModel) -> None:
    """Copy all weights into an adaptive form's parts; exit heads begin as the model's own."""
    family = family_of(dense.config)
    base = family.base(dense)
    _fill_embeddings(embeddings, base, family)
    parts = zip(encoder.layers, find_blocks(dense), family.layers_of(dense), strict=True)
    for layer, block, home in parts:
        _fill_layer(layer, block, home, family)  # type: ignore[arg-type]
    for head in encoder.heads.values():
        if isinstance(head, ExitHead):  # a vector's begins as the identity
            _fill_head(head, dense, family)
        elif isinstance(head, TokenHead):
            _copy(head.classifier, dense.get_submodule(TOKEN_HEADS[head.form.answer]))


def _fill_embeddings(ours: nn.Module, base: nn.Module, family: Family) -> None:
    if isinstance(ours, NormedEmbeddings):
        _copy(ours.norm, base.get_submodule(family.embedding_norm))
        ours = ours.embeddings
    ours.load_state_dict(base.get_submodule("embeddings").state_dict())


def _fill_layer(layer: ElasticLayer, block: Block, home: nn.Module, family: Family) -> None:
    projections = [block.projections[stream] for stream in "qkv"]
    weights = [linear.weight for linear in projections]
    biases = [_bias(linear) for linear in projections]
    heads = layer.sizes.heads
    layer.projection.weight.copy_(interleave(weights, heads))
    layer.projection.bias.copy_(interleave(biases, heads))
    pairs = [
        (layer.output, block.output),
        (layer.rise, block.rise),
        (layer.fall, block.fall),
        (layer.attention_norm, home.get_submodule(family.attention_norm)),
        (layer.feed_forward_norm, home.get_submodule(family.feed_forward_norm)),
    ]
    for ours, theirs in pairs:
        _copy(ours, theirs)


def _fill_head(head: ExitHead, dense: PreTrainedModel, family: Family) -> None:
    _copy(head.classifier, dense.get_submodule(family.classifier))
    if head.dense is not None:
        _copy(head.dense, dense.get_submodule(family.head_dense))
    if head.norm is not None:
        _copy(head.norm, family.base(dense).get_submodule(family.final_norm))


def _copy(ours: nn.Module, theirs: nn.Module) -> None:
    ours.weight.copy_(theirs.weight)  # type: ignore[operator,arg-type]
    ours.bias.copy_(_bias(theirs))  # type: ignore[operator]


def _bias(module: nn.Module) -> Tensor:
    """A layer's bias, zeros where it has none."""
    bias = module.bias
    if isinstance(bias, Tensor):
        return bias
    return module.weight.new_zeros(len(module.weight))  # type: ignore[operator,arg-type]


def interleave(
    streams: Sequence[Float[Tensor, "rows ..."]], heads: int
) -> Float[Tensor, "all_rows ..."]:
    """Rows of queries, keys and values, head by head: the three parts of a head are adjacent."""
    by_head = [rows.view(heads, -1, *rows.shape[1:]) for rows in streams]
    return torch.cat(by_head, 1).flatten(0, 1)
