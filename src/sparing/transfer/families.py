"""Where transformers' BERT and ViT families keep what an adaptive encoder is built from."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

from torch import nn
from transformers import PreTrainedModel
from transformers.activations import ACT2FN

from sparing.core.errors import Unsupported, UsageError
from sparing.layers.elastic import LayerForm
from sparing.layers.encoder import HeadForm
from sparing.layers.plan import LayerSizes


@dataclass(frozen=True)
class Family:
    """One family's names: of its norms and layers below the base model, and of its head.

    ``head_activation`` is that of the head's dense layer, which ``head_dense`` names; both empty
    where the classes follow at once.
    """

    embeddings: str
    layers: str
    attention_norm: str
    feed_forward_norm: str
    classifier: str
    head_dense: str = ""
    head_activation: str = ""
    final_norm: str = ""
    reads: str = "input_ids"

    @property
    def norm_first(self) -> bool:
        """Whether norms come before attention and feed-forward; such families end with one."""
        return bool(self.final_norm)

    def new_embeddings(self, config: Any) -> nn.Module:
        """transformers' own embeddings, with weights still to be read."""
        home, _, name = self.embeddings.rpartition(".")
        module: nn.Module = getattr(importlib.import_module(home), name)(config)
        return module


def _bert_like(kind: str, **head: str) -> Family:
    return Family(
        embeddings=f"transformers.models.{kind}.modeling_{kind}."
        f"{''.join(part.title() for part in kind.split('_')).replace('Xlm', 'XLM')}Embeddings",
        layers="encoder.layer",
        attention_norm="attention.output.LayerNorm",
        feed_forward_norm="output.LayerNorm",
        **head,
    )


def _vit_like(embeddings: str) -> Family:
    return Family(
        embeddings=embeddings,
        layers="layers",
        attention_norm="layernorm_before",
        feed_forward_norm="layernorm_after",
        classifier="classifier",
        final_norm="layernorm",
        reads="pixel_values",
    )


_SEPARATE_HEAD = {"classifier": "classifier.out_proj", "head_dense": "classifier.dense"}
FAMILIES = {
    "bert": _bert_like(
        "bert", classifier="classifier", head_dense="bert.pooler.dense", head_activation="tanh"
    ),
    "roberta": _bert_like("roberta", **_SEPARATE_HEAD, head_activation="tanh"),
    "xlm-roberta": _bert_like("xlm_roberta", **_SEPARATE_HEAD, head_activation="tanh"),
    "camembert": _bert_like("camembert", **_SEPARATE_HEAD, head_activation="tanh"),
    "electra": _bert_like("electra", **_SEPARATE_HEAD, head_activation="gelu"),
    "vit": _vit_like("transformers.models.vit.modeling_vit.ViTEmbeddings"),
    "deit": _vit_like("transformers.models.deit.modeling_deit.DeiTEmbeddings"),
}


def family_of(config: Any) -> Family:
    """The family of a configuration; raises ``Unsupported`` naming those that there are."""
    kind = str(getattr(config, "model_type", ""))
    if kind not in FAMILIES:
        raise Unsupported(
            f"{kind or 'this model'} has no adaptive form; there is one for {', '.join(FAMILIES)}"
        )
    embedding_dim = getattr(config, "embedding_size", config.hidden_size)
    if embedding_dim != config.hidden_size:
        raise Unsupported(
            f"this {kind} has embeddings of width {embedding_dim} below layers of width "
            f"{config.hidden_size}; an adaptive form needs one width"
        )
    if getattr(config, "is_decoder", False):
        raise Unsupported(f"this {kind} is a decoder; an adaptive form needs an encoder")
    return FAMILIES[kind]


def require_classifier(model: nn.Module) -> PreTrainedModel:
    """The model, when it is a dense classifier of a family that has an adaptive form.

    Raises ``UsageError`` or ``Unsupported`` with the reason otherwise.
    """
    if not isinstance(model, PreTrainedModel):
        raise UsageError(f"an adaptive form needs a transformers model, got {type(model).__name__}")
    family_of(model.config)
    named = type(model).__name__
    if not named.endswith(("ForSequenceClassification", "ForImageClassification")):
        raise Unsupported(
            f"{named} is no classifier; open the checkpoint as "
            "AutoModelForSequenceClassification or AutoModelForImageClassification"
        )
    if getattr(model.config, "sparing", None):
        raise Unsupported("the model carries a swap or another change already; give the dense one")
    if model.config.num_labels < 2 or model.config.problem_type == "regression":
        raise Unsupported("the model answers with numbers; inputs leave early only by classes")
    if model.config.problem_type == "multi_label_classification":
        raise Unsupported("the model gives several labels; inputs leave early only by one class")
    return model


def layer_form(config: Any, family: Family) -> LayerForm:
    """What all layers share, from a configuration."""
    dim = config.hidden_size // config.num_attention_heads
    activation = config.hidden_act
    return LayerForm(
        width=config.hidden_size,
        scale=dim**-0.5,
        norm_first=family.norm_first,
        norm_epsilon=config.layer_norm_eps,
        activation=ACT2FN[activation] if isinstance(activation, str) else activation,
        dropout=config.hidden_dropout_prob,
        attention_dropout=config.attention_probs_dropout_prob,
    )


def layer_sizes(config: Any) -> list[LayerSizes]:
    """What each dense layer has, from a configuration."""
    dim = config.hidden_size // config.num_attention_heads
    size = LayerSizes(config.num_attention_heads, dim, dim, config.intermediate_size)
    return [size] * config.num_hidden_layers


def head_form(config: Any, family: Family) -> HeadForm:
    """The form of the model's head, from a configuration."""
    dropout = getattr(config, "classifier_dropout", None)
    if family.norm_first:
        dropout = 0.0
    elif dropout is None:
        dropout = config.hidden_dropout_prob
    return HeadForm(
        width=config.hidden_size,
        classes=config.num_labels,
        activation=family.head_activation,
        norm_epsilon=config.layer_norm_eps if family.norm_first else None,
        dropout=dropout,
    )
