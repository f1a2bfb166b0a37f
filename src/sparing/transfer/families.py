"""The modules of transformers' BERT and ViT families from which an adaptive encoder is built."""

from __future__ import annotations

import copy
import importlib
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.activations import ACT2FN

from sparing.core.errors import Unsupported, UsageError
from sparing.foreign.kinds import answer_kind, by_token
from sparing.layers.elastic import LayerForm
from sparing.layers.encoder import Form, HeadForm
from sparing.layers.plan import LayerSizes
from sparing.layers.tokens import TokenForm
from sparing.layers.vectors import VectorForm
from sparing.models.shared.shape import image_config
from sparing.transfer.patching import CHILD as PATCHES
from sparing.transfer.registry import NAME
from sparing.transfer.swap import entry_of


@dataclass(frozen=True)
class Family:
    """One family's names: of its norms and layers below the base model, and of its head.

    ``layers`` are the names that releases of transformers gave the list of layers. ``home`` is the
    path of the base model in the classifier, empty where transformers knows it. ``norm_first`` says
    that norms come before attention and feed-forward. ``head_activation`` is that of the head's
    dense layer, which ``head_dense`` names; both are empty where the classifier follows directly.
    ``embedding_norm`` and ``final_norm`` come before the first and after the last layer.
    ``averages`` says that the head reads the mean of all tokens but the class token.
    """

    embeddings: str
    layers: tuple[str, ...]
    attention_norm: str
    feed_forward_norm: str
    classifier: str
    head_dense: str = ""
    head_activation: str = ""
    norm_first: bool = False
    embedding_norm: str = ""
    final_norm: str = ""
    averages: bool = False
    reads: str = "input_ids"
    home: str = ""

    def encoder_config(self, config: Any) -> Any:
        """The part of a configuration that sizes the encoder."""
        return image_config(config) if self.reads == "pixel_values" else config

    def base(self, dense: PreTrainedModel) -> nn.Module:
        """The model below the classifier."""
        base_model: nn.Module = dense.get_submodule(self.home) if self.home else dense.base_model
        return base_model

    def layers_of(self, dense: PreTrainedModel) -> list[nn.Module]:
        """The layers below the classifier, from the first to the last."""
        base = self.base(dense)
        names = {name for name, _ in base.named_modules()}
        present = next(name for name in self.layers if name in names)
        return list(base.get_submodule(present).children())

    def new_embeddings(self, config: Any) -> nn.Module:
        """transformers' own embeddings, with weights still to be read."""
        home, _, name = self.embeddings.rpartition(".")
        sizes = self.encoder_config(config)
        module: nn.Module = getattr(importlib.import_module(home), name)(sizes)
        if not self.embedding_norm:
            return module
        return NormedEmbeddings(module, nn.LayerNorm(sizes.hidden_size, eps=sizes.layer_norm_eps))


class NormedEmbeddings(nn.Module):
    """Embeddings and the norm that a family puts between them and its first layer."""

    def __init__(self, embeddings: nn.Module, norm: nn.LayerNorm) -> None:
        super().__init__()
        self.embeddings, self.norm = embeddings, norm

    @property
    def position_embeddings(self) -> nn.Module:
        """One row for each position of a token."""
        table: nn.Module = self.embeddings.position_embedding  # type: ignore[assignment]
        return table

    def forward(
        self, pixel_values: Float[Tensor, "batch channels height width"]
    ) -> Float[Tensor, "batch tokens hidden_width"]:
        """The normed embeddings of the class token and the patches."""
        rows: Tensor = self.norm(self.embeddings(pixel_values))
        return rows


def _bert_like(kind: str, classifier: str, head_dense: str, head_activation: str) -> Family:
    return Family(
        embeddings=f"transformers.models.{kind}.modeling_{kind}."
        f"{''.join(part.title() for part in kind.split('_')).replace('Xlm', 'XLM')}Embeddings",
        layers=("encoder.layer",),
        attention_norm="attention.output.LayerNorm",
        feed_forward_norm="output.LayerNorm",
        classifier=classifier,
        head_dense=head_dense,
        head_activation=head_activation,
    )


def _vit_like(embeddings: str) -> Family:
    return Family(
        embeddings=embeddings,
        layers=("layers", "encoder.layer"),
        attention_norm="layernorm_before",
        feed_forward_norm="layernorm_after",
        classifier="classifier",
        norm_first=True,
        final_norm="layernorm",
        reads="pixel_values",
    )


ATTENTION_DROPOUT = "attention_probs_dropout_prob"
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
    "clip": Family(
        embeddings="transformers.models.clip.modeling_clip.CLIPVisionEmbeddings",
        layers=("encoder.layers",),
        attention_norm="layer_norm1",
        feed_forward_norm="layer_norm2",
        classifier="classifier",
        norm_first=True,
        embedding_norm="pre_layrnorm",
        averages=True,
        reads="pixel_values",
        home="vision_model",
    ),
}


def family_of(config: Any) -> Family:
    """The family of a configuration; raises ``Unsupported`` naming the known ones."""
    kind = family_type(config)
    if kind not in FAMILIES:
        raise Unsupported(
            f"{kind or 'this model'} has no adaptive form; there is one for {', '.join(FAMILIES)}"
        )
    width = FAMILIES[kind].encoder_config(config).hidden_size
    embedding_dim = getattr(config, "embedding_size", width)
    if embedding_dim != width:
        raise Unsupported(
            f"this {kind} has embeddings of width {embedding_dim} below layers of width "
            f"{width}; an adaptive form needs one width"
        )
    if getattr(config, "is_decoder", False):
        raise Unsupported(f"this {kind} is a decoder; an adaptive form needs an encoder")
    return FAMILIES[kind]


def family_type(config: Any) -> str:
    """The model type of a configuration's family, which an adaptive one keeps beside its own."""
    return str(getattr(config, "base_model_type", "") or getattr(config, "model_type", ""))


def require_classifier(model: nn.Module) -> PreTrainedModel:
    """The model, if it is a dense classifier of a family that has an adaptive form.

    Its answer may also be several labels, or one number.

    Raises ``UsageError`` or ``Unsupported`` with the reason otherwise.
    """
    dense = _require_family(model)
    named = type(dense).__name__
    if not named.endswith(("ForSequenceClassification", "ForImageClassification")):
        raise Unsupported(
            f"{named} is not a classifier; open the checkpoint as "
            "AutoModelForSequenceClassification or AutoModelForImageClassification"
        )
    if answer_kind(dense.config) == "number" and dense.config.num_labels > 1:
        raise Unsupported(f"the model predicts {dense.config.num_labels} numbers for each input")
    _require_own_parts(dense)
    return dense


def require_token_model(model: nn.Module) -> PreTrainedModel:
    """The model, if it is a dense one of such a family that answers for each token of a text.

    Raises ``UsageError`` or ``Unsupported`` with the reason otherwise.
    """
    dense = _require_family(model)
    answer = by_token(type(dense).__name__)
    if answer is None:
        raise Unsupported(f"{type(dense).__name__} gives no answer for each token")
    if answer == "span" and dense.config.num_labels != 2:
        raise Unsupported(f"the model gives {dense.config.num_labels} ends of an answer, not 2")
    _require_own_parts(dense)
    return dense


def require_encoder(model: nn.Module) -> PreTrainedModel:
    """The model, if it is a dense text encoder without a head of such a family.

    Raises ``UsageError`` or ``Unsupported`` with the reason otherwise.
    """
    dense = _require_family(model)
    if dense.base_model is not dense or dense.main_input_name != "input_ids":
        raise Unsupported(f"{type(dense).__name__} is not a text encoder without a head")
    _require_own_parts(dense)
    return dense


def _require_family(model: nn.Module) -> PreTrainedModel:
    """The model, if its family has an adaptive form and it carries no other change."""
    if not isinstance(model, PreTrainedModel):
        raise UsageError(f"an adaptive form needs a transformers model; got {type(model).__name__}")
    family_of(model.config)
    carried = entry_of(model)
    if carried.keys() - {"version", "patches"}:
        raise Unsupported("the model carries a swap or another change already; give the dense one")
    return model


def _require_own_parts(model: PreTrainedModel) -> None:
    """Raise ``Unsupported``, naming it, for a part that is not as the model's class builds it.

    Its weights could not be copied, or its computation would be lost silently.
    """
    kinds: list[Any] = [
        base for base in type(model).__mro__ if base.__module__.startswith("transformers.")
    ]
    with torch.device("meta"):
        plain = kinds[0](copy.deepcopy(model.config))
    ours = {name: part for name, part in model.named_modules() if not name.endswith(PATCHES)}
    theirs = dict(plain.named_modules())
    for name in {**theirs, **ours}:
        got, usual = (type(parts.get(name)).__name__ for parts in (ours, theirs))
        if name and got != usual:
            raise Unsupported(
                f"{name} is {_named(got)}, and {kinds[0].__name__} has {_named(usual)} there; an "
                "adaptive form needs the parts of that class"
            )
    shapes = {name: tuple(value.shape) for name, value in model.named_parameters()}
    for name, value in plain.named_parameters():
        if shapes.get(name) != tuple(value.shape):
            raise Unsupported(
                f"{name} is {shapes.get(name)}, and the configuration says {tuple(value.shape)}"
            )
    if type(model).forward is not kinds[0].forward:
        raise Unsupported(
            f"{type(model).__name__} has its own forward, which an adaptive form cannot copy"
        )


def _named(kind: str) -> str:
    return "nothing" if kind == "NoneType" else kind


def layer_form(config: Any, family: Family) -> LayerForm:
    """The settings that all layers share, from a configuration."""
    sizes = family.encoder_config(config)
    dim = sizes.hidden_size // sizes.num_attention_heads
    activation = sizes.hidden_act
    # CLIP drops only attention weights, under its own name
    name = "attention_dropout" if hasattr(sizes, "attention_dropout") else ATTENTION_DROPOUT
    return LayerForm(
        width=sizes.hidden_size,
        scale=dim**-0.5,
        norm_first=family.norm_first,
        norm_epsilon=sizes.layer_norm_eps,
        activation=ACT2FN[activation] if isinstance(activation, str) else activation,
        dropout=getattr(sizes, "hidden_dropout_prob", 0.0),
        attention_dropout=getattr(sizes, name),
    )


def layer_sizes(config: Any) -> list[LayerSizes]:
    """The sizes of each dense layer, from a configuration."""
    sizes = family_of(config).encoder_config(config)
    dim = sizes.hidden_size // sizes.num_attention_heads
    size = LayerSizes(sizes.num_attention_heads, dim, dim, sizes.intermediate_size)
    return [size] * sizes.num_hidden_layers


def head_form(config: Any, family: Family) -> Form:
    """The form of the model's head, from a configuration."""
    sizes, entry = family.encoder_config(config), getattr(config, NAME)["adaptive"]
    if "vector" in entry:
        return VectorForm.from_dict(entry["vector"], sizes.hidden_size)
    dropout = getattr(config, "classifier_dropout", None)
    if family.norm_first:
        dropout = 0.0
    elif dropout is None:
        dropout = config.hidden_dropout_prob
    if "tokens" in entry:
        dropout = 0.0 if entry["tokens"] == "span" else dropout
        return TokenForm(sizes.hidden_size, config.num_labels, entry["tokens"], dropout)
    return HeadForm(
        width=sizes.hidden_size,
        classes=config.num_labels,
        activation=family.head_activation,
        norm_epsilon=sizes.layer_norm_eps if family.final_norm else None,
        dropout=dropout,
        averages=family.averages,
        one_class=answer_kind(config) == "class",
    )
