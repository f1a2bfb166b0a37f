"""A family of transformers' encoders: its names and sizes, from which an adaptive form is built.

A family is one file. What it says here by default is what BERT does.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.activations import ACT2FN

from sparing.core.errors import UsageError
from sparing.layers.elastic import ElasticLayer, LayerForm
from sparing.layers.heads import ACTIVATIONS, BodyForm
from sparing.transfer.blocks import Block, Paths, named_blocks, registered_blocks


@dataclass(frozen=True)
class Sizes:
    """The sizes and settings of a family's encoder, whatever its configuration calls them."""

    width: int
    heads: int
    layers: int
    neurons: int
    norm_epsilon: float
    activation: Any
    dropout: float = 0.0
    attention_dropout: float = 0.0

    @property
    def dim(self) -> int:
        """The channels of a head."""
        return self.width // self.heads


@dataclass(frozen=True)
class Family:
    """One family's names: of its norms and layers below the base model, and of its head.

    ``layers`` are the names that releases of transformers gave the list of layers. ``home`` is the
    path of the base model in the classifier, empty where transformers knows it. ``norm_first`` says
    that norms come before attention and feed-forward. ``head_activation`` is that of the head's
    dense layer, which ``head_dense`` names; both are empty where the classifier follows directly.
    ``embedding_norm`` and ``final_norm`` come before the first and after the last layer.
    ``pooling`` says which rows the head reads (see ``layers.heads``). ``token_classifier`` and
    ``span_classifier`` name the layer behind each token in models that answer for each.
    ``token_types`` says whether the embeddings know them. ``paths`` are those of a block's modules,
    None where these are found as BERT's are. ``norms_last_state`` says that the last of
    transformers' hidden states is that behind the final norm.
    """

    embeddings: str
    layers: tuple[str, ...]
    attention_norm: str
    feed_forward_norm: str
    classifier: str = "classifier"
    head_dense: str = ""
    head_activation: str = ""
    norm_first: bool = False
    final_norm: str = ""
    pooling: Literal["first", "mean", "others"] = "first"
    embedding_norm: str = ""
    reads: str = "input_ids"
    home: str = ""
    token_classifier: str = "classifier"
    span_classifier: str = "qa_outputs"
    token_types: bool = True
    paths: Paths | None = None
    norms_last_state: bool = False

    def obstacle(self, config: Any) -> str:
        """Why a model of this configuration has no adaptive form; empty where it has one."""
        width = self.sizes(config).width
        inner = getattr(config, "embedding_size", width)
        if inner != width:
            return (
                f"embeddings of width {inner} below layers of width {width}; an adaptive form "
                "needs one width"
            )
        return ""

    def sizes(self, config: Any) -> Sizes:
        """The encoder's sizes."""
        return Sizes(
            config.hidden_size,
            config.num_attention_heads,
            config.num_hidden_layers,
            config.intermediate_size,
            config.layer_norm_eps,
            config.hidden_act,
            getattr(config, "hidden_dropout_prob", 0.0),
            config.attention_probs_dropout_prob,
        )

    def layer_forms(self, config: Any) -> list[LayerForm]:
        """The settings of each layer."""
        sizes = self.sizes(config)
        form = LayerForm(
            width=sizes.width,
            scale=sizes.dim**-0.5,
            norm_first=self.norm_first,
            norm_epsilon=sizes.norm_epsilon,
            activation=activation_of(sizes.activation),
            dropout=float(sizes.dropout),
            attention_dropout=float(sizes.attention_dropout),
        )
        return [form] * sizes.layers

    def body(self, config: Any, answer: str) -> BodyForm:
        """What comes before the classes of a model with this kind of answer."""
        sizes = self.sizes(config)
        epsilon = sizes.norm_epsilon if self.final_norm else None
        dense = self.head_activation if answer in ("class", "labels", "number") else ""
        return BodyForm(sizes.width, dense, epsilon)

    def head_pooling(self, config: Any) -> Literal["first", "mean", "others"]:
        """Which rows the head of a classifier reads."""
        return self.pooling

    def head_dropout(self, config: Any, answer: str) -> float:
        """The dropout before the classes."""
        if self.norm_first or answer == "span":
            return 0.0
        stated = getattr(config, "classifier_dropout", None)
        return float(config.hidden_dropout_prob if stated is None else stated)

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

    def blocks(self, dense: PreTrainedModel) -> list[Block]:
        """The layers' modules of heads and neurons, pruned or not."""
        if self.paths is None:
            return registered_blocks(dense)
        dim, layers = self.sizes(dense.config).dim, self.layers_of(dense)
        return named_blocks(dense, layers, self.paths, dim, self.after_cut)

    def after_cut(self, attention: Any, heads: Sequence[int]) -> None:
        """Let a layer of the dense model know which heads remain, where it must."""

    def new_embeddings(self, config: Any) -> nn.Module:
        """transformers' own embeddings, with weights still to be read."""
        home, _, name = self.embeddings.rpartition(".")
        module: nn.Module = getattr(importlib.import_module(home), name)(config)
        return module if self.token_types or self.reads != "input_ids" else WithoutTypes(module)

    def fill_embeddings(self, ours: nn.Module, base: nn.Module) -> None:
        """Copy the embeddings' weights."""
        state = base.get_submodule("embeddings").state_dict()
        inner = ours.embeddings if isinstance(ours, WithoutTypes) else ours
        inner.load_state_dict(state)

    def fill_distances(self, ours: ElasticLayer, dense: PreTrainedModel, number: int) -> None:
        """Copy what layer ``number`` (from 0) knows of distances; BERT's know nothing."""

    def fill_body(self, ours: Any, dense: PreTrainedModel) -> None:
        """Copy what comes before the classes: norms and a dense layer, where there are any."""
        if ours.dense is not None:
            copy_affine(ours.dense, dense.get_submodule(self.head_dense))
        if ours.norm is not None:
            copy_affine(ours.norm, self.base(dense).get_submodule(self.final_norm))

    def table_of(self, embeddings: nn.Module) -> tuple[nn.Module, str]:
        """The module that holds the table of tokens, and the table's name in it."""
        inner = embeddings.embeddings if isinstance(embeddings, WithoutTypes) else embeddings
        return inner, "word_embeddings"

    def longest(self, config: Any, embeddings: nn.Module) -> int:
        """The most tokens of an input; of an image with the class token."""
        inner: Any = embeddings.embeddings if isinstance(embeddings, WithoutTypes) else embeddings
        positions = inner.position_embeddings
        if not isinstance(positions, nn.Embedding):
            return int(positions.shape[1])
        # RoBERTa's first token has the position after the pad's
        first = 0 if positions.padding_idx is None else positions.padding_idx + 1
        return int(positions.num_embeddings) - first


class WithoutTypes(nn.Module):
    """Embeddings of a family without token types, called like those of a family with them."""

    def __init__(self, embeddings: nn.Module) -> None:
        super().__init__()
        self.embeddings = embeddings

    def forward(
        self,
        input_ids: Int[Tensor, "batch tokens"],
        token_type_ids: Int[Tensor, "batch tokens"] | None = None,
    ) -> Float[Tensor, "batch tokens hidden_width"]:
        """The embeddings of the tokens; raises ``UsageError`` for types that are not all 0."""
        if token_type_ids is not None and bool(token_type_ids.any()):
            raise UsageError(
                "this model has no token types, and it got some that are not 0: tokenise pairs "
                "with the model's own tokenizer"
            )
        rows: Tensor = self.embeddings(input_ids=input_ids)
        return rows


def activation_of(named: Any) -> Any:
    """The function of an activation that a configuration names, or gives."""
    return ACT2FN[named] if isinstance(named, str) else named


def head_obstacle(activation: Any) -> str:
    """Why a head with this activation has no adaptive form; empty where it has one."""
    known = ", ".join(ACTIVATIONS)
    return "" if activation in ACTIVATIONS else f"a head with {activation!r}; known are {known}"


@torch.no_grad()
def copy_affine(ours: Any, theirs: Any) -> None:
    """Copy a weight and a bias, zeros where there is none."""
    ours.weight.copy_(theirs.weight)
    ours.bias.copy_(bias_of(theirs))


def bias_of(module: Any) -> Tensor:
    """A layer's bias, zeros where it has none."""
    bias: Tensor | None = getattr(module, "bias", None)
    return module.weight.new_zeros(len(module.weight)) if bias is None else bias


def linears(layer: nn.Module, paths: Sequence[str]) -> list[Any]:
    """The modules at paths below a layer."""
    return [layer.get_submodule(path) for path in paths]
