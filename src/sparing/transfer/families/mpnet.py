"""MPNet: BERT's layers, and a table of biases by distance that all layers share."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from sparing.layers.distances import Buckets, Table
from sparing.layers.elastic import ElasticLayer, LayerForm
from sparing.transfer.blocks import Paths
from sparing.transfer.families.form import Family

# transformers computes so many buckets, whatever the configuration says
BUCKETS = 32


@dataclass(frozen=True)
class MPNet(Family):
    """See the module. Each layer has its own copy of the table, in its own order of heads."""

    def obstacle(self, config: Any) -> str:
        """See ``Family``."""
        count = config.relative_attention_num_buckets
        if count < BUCKETS:
            return f"{count} buckets of distances, and transformers looks up {BUCKETS}"
        return super().obstacle(config)

    def layer_forms(self, config: Any) -> list[LayerForm]:
        """See ``Family``."""
        from transformers.models.mpnet.modeling_mpnet import MPNetEncoder

        longest = config.max_position_embeddings
        steps = torch.arange(-longest, longest + 1)
        # it counts from the query to the key
        buckets = Buckets(MPNetEncoder.relative_position_bucket(-steps, num_buckets=BUCKETS))
        table = Table(config.relative_attention_num_buckets, buckets)
        return [replace(form, distances=table) for form in super().layer_forms(config)]

    def after_cut(self, attention: Any, heads: Sequence[int]) -> None:
        """Let a pruned layer take its heads' biases from those of all heads."""
        attention.remaining_heads = list(heads)
        kind: Any = type(attention)
        attention.__class__ = _with_heads(kind)

    def fill_distances(self, ours: ElasticLayer, dense: PreTrainedModel, number: int) -> None:
        """Copy the table: a row for each head here, a column there."""
        shared: Any = self.base(dense).get_submodule("encoder.relative_attention_bias")
        table: Any = ours.distances
        table.values.copy_(shared.weight.T)


@functools.cache
def _with_heads(kind: Any) -> Any:
    """The attention class for a layer that has some of its heads left."""
    if hasattr(kind, "chooses_heads"):
        return kind

    def forward(
        self: Any, hidden: Tensor, mask: Any = None, bias: Any = None, *rest: Any, **more: Any
    ) -> Any:
        chosen = None if bias is None else bias[:, self.remaining_heads]
        return kind.forward(self, hidden, mask, chosen, *rest, **more)

    names = {"forward": forward, "__module__": kind.__module__, "chooses_heads": True}
    return type(kind.__name__, (kind,), {**names, "__qualname__": kind.__qualname__})


MPNET = MPNet(
    embeddings="transformers.models.mpnet.modeling_mpnet.MPNetEmbeddings",
    layers=("encoder.layer",),
    attention_norm="attention.LayerNorm",
    feed_forward_norm="output.LayerNorm",
    classifier="classifier.out_proj",
    head_dense="classifier.dense",
    head_activation="tanh",
    token_types=False,
    paths=Paths(
        attention="attention.attn",
        projections={"q": "attention.attn.q", "k": "attention.attn.k", "v": "attention.attn.v"},
        output="attention.attn.o",
        rise="intermediate.dense",
        fall="output.dense",
    ),
)
