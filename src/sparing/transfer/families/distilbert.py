"""DistilBERT: BERT's layers under other names, without token types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sparing.transfer.families.form import Family, Sizes

NORM_EPSILON = 1e-12  # stated in its code, not in its configuration


@dataclass(frozen=True)
class DistilBert(Family):
    """See the module."""

    def sizes(self, config: Any) -> Sizes:
        """The encoder's sizes; the dropout is that behind its feed-forward."""
        return Sizes(
            config.dim,
            config.n_heads,
            config.n_layers,
            config.hidden_dim,
            NORM_EPSILON,
            config.activation,
            config.dropout,
            config.attention_dropout,
        )

    def head_dropout(self, config: Any, answer: str) -> float:
        """The dropout before the classes, which each kind of answer has under its own name."""
        names = {"span": "qa_dropout", "entities": "dropout"}
        return float(getattr(config, names.get(answer, "seq_classif_dropout")))


DISTILBERT = DistilBert(
    embeddings="transformers.models.distilbert.modeling_distilbert.Embeddings",
    layers=("transformer.layer",),
    attention_norm="sa_layer_norm",
    feed_forward_norm="output_layer_norm",
    head_dense="pre_classifier",
    head_activation="relu",
    token_types=False,
)
