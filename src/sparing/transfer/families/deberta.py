"""DeBERTa-v2 and v3: scores of content with content, and of content with distances."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import PreTrainedModel

from sparing.layers.distances import Buckets, Disentangled
from sparing.layers.elastic import ElasticLayer, LayerForm
from sparing.layers.heads import BodyForm
from sparing.transfer.blocks import Paths
from sparing.transfer.families.form import Family, head_obstacle

TERMS = ("c2p", "p2c")


@dataclass(frozen=True)
class Deberta(Family):
    """See the module.

    transformers projects the embeddings of distances by the key and query matrices in every call;
    here each layer has the result as weights of its own.
    """

    def obstacle(self, config: Any) -> str:
        """See ``Family``; a convolution behind the first layer is the commonest."""
        unknown = sorted({*_terms(config)} - {*TERMS})
        if unknown:
            return f"scores of the kind {unknown[0]!r}; known are {' and '.join(TERMS)}"
        if getattr(config, "conv_kernel_size", 0) > 0:
            return "a convolution behind its first layer (conv_kernel_size)"
        dim = config.hidden_size // config.num_attention_heads
        if getattr(config, "attention_head_size", dim) != dim:
            return f"heads of {config.attention_head_size} channels (attention_head_size)"
        if config.pooler_hidden_size != config.hidden_size:
            return f"a pooler of width {config.pooler_hidden_size} (pooler_hidden_size)"
        return head_obstacle(config.pooler_hidden_act)

    def layer_forms(self, config: Any) -> list[LayerForm]:
        """See ``Family``."""
        forms = super().layer_forms(config)
        terms = _terms(config)
        # transformers takes the root in float32
        spread = torch.tensor(self.sizes(config).dim * (1 + len(terms)), dtype=torch.float32)
        scale = 1 / float(spread.sqrt())
        forms = [replace(form, scale=scale) for form in forms]
        if not _relative(config) or not terms:
            return forms
        distances = Disentangled(
            2 * _span(config), _buckets(config), "c2p" in terms, "p2c" in terms
        )
        return [replace(form, distances=distances) for form in forms]

    def fill_distances(self, ours: ElasticLayer, dense: PreTrainedModel, number: int) -> None:
        """Project the embeddings of distances once, with the scores' scale."""
        config: Any = dense.config
        terms = _terms(config)
        if not _relative(config) or not terms:
            return
        base: Any = self.base(dense)
        embedded = base.encoder.get_rel_embedding()[: 2 * _span(config)]
        attention = base.encoder.layer[number].attention.self
        start = "" if attention.share_att_key else "pos_"
        distances: Any = ours.distances
        tables = {"c2p": ("key", distances.keys), "p2c": ("query", distances.queries)}
        for term in terms:
            stream, table = tables[term]
            rows = getattr(attention, f"{start}{stream}_proj")(embedded)
            table.copy_(_by_head(rows, len(table)) * ours.form.scale)

    def body(self, config: Any, answer: str) -> BodyForm:
        """See ``Family``."""
        body = super().body(config, answer)
        return replace(body, activation=config.pooler_hidden_act) if body.activation else body

    def head_dropout(self, config: Any, answer: str) -> float:
        """See ``Family``."""
        stated = getattr(config, "cls_dropout", None) if answer != "entities" else None
        if answer == "span":
            return 0.0
        return float(config.hidden_dropout_prob if stated is None else stated)

    def longest(self, config: Any, embeddings: nn.Module) -> int:
        """Positions may be distances alone: the configuration says how far they go."""
        return int(config.max_position_embeddings)


def _terms(config: Any) -> Sequence[str]:
    return [*dict.fromkeys(config.pos_att_type or ())]


def _relative(config: Any) -> bool:
    return bool(getattr(config, "relative_attention", False))


def _farthest(config: Any) -> int:
    stated = int(getattr(config, "max_relative_positions", -1))
    return stated if stated >= 1 else int(config.max_position_embeddings)


def _span(config: Any) -> int:
    """Buckets on one side."""
    buckets = int(getattr(config, "position_buckets", -1))
    return buckets if buckets > 0 else _farthest(config)


def _buckets(config: Any) -> Buckets:
    """The bucket of each distance: itself when near, by its logarithm when far.

    Source: He et al., 2021 (DeBERTaV3), arXiv 2111.09543, and its released code.
    """
    from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

    longest, span = int(config.max_position_embeddings), _span(config)
    steps = torch.arange(-longest, longest + 1)
    count, farthest = int(getattr(config, "position_buckets", -1)), _farthest(config)
    if count > 0 and farthest > 0:
        steps = make_log_bucket_position(steps, count, farthest).long()
    return Buckets((steps + span).clamp(0, 2 * span - 1))


def _by_head(
    rows: Float[Tensor, "buckets width"], heads: int
) -> Float[Tensor, "all_heads buckets dim"]:
    return rows.view(len(rows), heads, -1).transpose(0, 1)


_SELF = "attention.self."
DEBERTA_V2 = Deberta(
    embeddings="transformers.models.deberta_v2.modeling_deberta_v2.DebertaV2Embeddings",
    layers=("encoder.layer",),
    attention_norm="attention.output.LayerNorm",
    feed_forward_norm="output.LayerNorm",
    head_dense="pooler.dense",
    head_activation="gelu",
    paths=Paths(
        attention="attention.self",
        projections={
            "q": f"{_SELF}query_proj",
            "k": f"{_SELF}key_proj",
            "v": f"{_SELF}value_proj",
        },
        output="attention.output.dense",
        rise="intermediate.dense",
        fall="output.dense",
        followers=(f"{_SELF}pos_key_proj", f"{_SELF}pos_query_proj"),
    ),
)
