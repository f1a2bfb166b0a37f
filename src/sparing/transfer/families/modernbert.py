"""ModernBERT: rotary positions, gated neurons, norms first, layers that see a window."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import nn
from transformers import PreTrainedModel

from sparing.layers.distances import Rotary
from sparing.layers.elastic import LayerForm
from sparing.layers.heads import BodyForm
from sparing.transfer.blocks import Paths
from sparing.transfer.families.form import Family, Sizes, copy_affine, head_obstacle

SLIDING = "sliding_attention"
# kinds of frequencies that are the same for inputs of every length
FIXED = ("default", "linear", "yarn", "llama3", "proportional")


@dataclass(frozen=True)
class ModernBert(Family):
    """See the module; it has no biases, and those of the adaptive form begin at 0."""

    def obstacle(self, config: Any) -> str:
        """See ``Family``."""
        unknown = sorted({*config.layer_types} - {SLIDING, "full_attention"})
        if unknown:
            return f"layers of the type {unknown[0]!r}"
        for kind in sorted({*config.layer_types}):
            named = config.rope_parameters[kind]["rope_type"]
            if named not in FIXED:
                return f"rotary positions of the type {named!r}; known are {', '.join(FIXED)}"
        dim = self.sizes(config).dim
        if (getattr(config, "head_dim", None) or dim) != dim:
            return f"angles for heads of {config.head_dim} channels (head_dim), and they have {dim}"
        return head_obstacle(config.classifier_activation)

    def sizes(self, config: Any) -> Sizes:
        """See ``Family``."""
        return Sizes(
            config.hidden_size,
            config.num_attention_heads,
            config.num_hidden_layers,
            config.intermediate_size,
            config.norm_eps,
            config.hidden_activation,
            config.mlp_dropout,
            config.attention_dropout,
        )

    def layer_forms(self, config: Any) -> list[LayerForm]:
        """Each layer's frequencies and window; the first has no norm before attention."""
        kinds = {kind: _rotary(config, kind) for kind in {*config.layer_types}}
        return [
            replace(form, gated=True, norms_input=number > 0, distances=kinds[kind])
            for number, (form, kind) in enumerate(
                zip(super().layer_forms(config), config.layer_types, strict=True)
            )
        ]

    def body(self, config: Any, answer: str) -> BodyForm:
        """Its dense layer and second norm come before tokens' classes too, not behind vectors."""
        activation = "" if answer == "vector" else config.classifier_activation
        sizes = self.sizes(config)
        return BodyForm(sizes.width, activation, sizes.norm_epsilon, norms_after=bool(activation))

    def fill_body(self, ours: Any, dense: PreTrainedModel) -> None:
        """See ``Family``."""
        super().fill_body(ours, dense)
        if ours.last_norm is not None:
            copy_affine(ours.last_norm, dense.get_submodule("head.norm"))

    def head_pooling(self, config: Any) -> Literal["first", "mean", "others"]:
        """See ``Family``."""
        return "mean" if config.classifier_pooling == "mean" else "first"

    def head_dropout(self, config: Any, answer: str) -> float:
        """See ``Family``."""
        return float(config.classifier_dropout)

    def table_of(self, embeddings: nn.Module) -> tuple[nn.Module, str]:
        """See ``Family``."""
        return super().table_of(embeddings)[0], "tok_embeddings"

    def longest(self, config: Any, embeddings: nn.Module) -> int:
        """Positions are angles: the configuration says how far they go."""
        return int(config.max_position_embeddings)


def _rotary(config: Any, kind: str) -> Rotary:
    """The frequencies of one kind of layers, as transformers computes them."""
    from transformers.models.modernbert.modeling_modernbert import ModernBertRotaryEmbedding

    with torch.device("cpu"):
        made: Any = ModernBertRotaryEmbedding(config)
    return Rotary(
        frequencies=tuple(getattr(made, f"{kind}_inv_freq").tolist()),
        longest=int(config.max_position_embeddings),
        factor=float(getattr(made, f"{kind}_attention_scaling")),
        window=config.local_attention // 2 if kind == SLIDING else None,
    )


MODERNBERT = ModernBert(
    embeddings="transformers.models.modernbert.modeling_modernbert.ModernBertEmbeddings",
    layers=("layers",),
    attention_norm="attn_norm",
    feed_forward_norm="mlp_norm",
    head_dense="head.dense",
    norm_first=True,
    final_norm="final_norm",
    span_classifier="classifier",
    token_types=False,
    norms_last_state=True,
    paths=Paths(
        attention="attn",
        projections={"q": "attn.Wqkv", "k": "attn.Wqkv", "v": "attn.Wqkv"},
        output="attn.Wo",
        rise="mlp.Wi",
        fall="mlp.Wo",
    ),
)
