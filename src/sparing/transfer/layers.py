"""Find a model's attention layers and describe each before anything is changed."""

from __future__ import annotations

import functools
import inspect
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

from sparing.core.errors import Unsupported, UsageError
from sparing.transfer.registry import NAME, Own

_REGISTRY = "ALL_ATTENTION_FUNCTIONS"
_SPLIT_PROJECTIONS = (
    ("query", "key", "value"),
    ("q_proj", "k_proj", "v_proj"),
    ("q_lin", "k_lin", "v_lin"),
    ("query_proj", "key_proj", "value_proj"),
    ("q", "k", "v"),
)
# Attention modules outside of the registry that can be replaced; they add a bias to their scores.
_REPLACEABLE = {
    ("transformers.models.mpnet.modeling_mpnet", "MPNetSelfAttention"),
    ("transformers.models.deberta_v2.modeling_deberta_v2", "DisentangledSelfAttention"),
}
HEAD_COUNTS = ("num_attention_heads", "num_heads", "n_heads")
_FUSED_PROJECTIONS = ("c_attn", "Wqkv")


@dataclass(frozen=True)
class AttentionLayer:
    """One attention module of a model.

    ``index`` counts the self-attention layers in the order of the model's modules (transformers'
    own ``layer_idx`` is not always there); None for cross-attention. ``obstacle`` says why no
    mechanism can serve it; empty where one may. ``dropout`` is the share of attention weights that
    the layer drops in training. ``biased``: it adds a bias by distance to its scores. ``window`` is
    how far it sees in both directions; None for all. Some mechanisms serve neither of these.
    """

    name: str
    module: nn.Module
    index: int | None
    obstacle: str
    heads: int
    dim: int
    width: int
    causal: bool
    dropout: float
    biased: bool = False
    window: int | None = None

    @property
    def plain(self) -> bool:
        """Whether it is self-attention of all tokens by products of queries and keys alone."""
        special = self.obstacle or self.biased or self.window is not None
        return self.index is not None and not special


def find_layers(model: nn.Module) -> list[AttentionLayer]:
    """All attention layers that a swap may reach, in the order of the modules.

    transformers dispatches most by name; those of MPNet and DeBERTa-v2 can be replaced. Raises
    ``Unsupported`` naming the family when there is none, and ``UsageError`` when this is not a
    transformers model.
    """
    if not isinstance(model, PreTrainedModel):
        raise UsageError(
            f"swap needs a transformers model; got {type(model).__name__}; "
            "a model of your own can use sparing.Attention"
        )
    layers: list[AttentionLayer] = []
    for name, module in model.named_modules():
        if not (is_dispatched(module) or is_replaceable(module)):
            continue
        cross = _is_cross(name, module)
        index = None if cross else sum(layer.index is not None for layer in layers)
        layers.append(_describe(model, name, module, index))
    if not layers:
        raise Unsupported(
            f"{model.config.model_type} ({type(model).__name__}) computes its attention without "
            "transformers' attention registry, so there is nothing to swap; choose a family that "
            "uses it, such as bert, roberta, modernbert, vit, gpt2 or llama, or mpnet or deberta-v2"
        )
    return layers


def is_dispatched(module: nn.Module) -> bool:
    """Whether transformers looks up the function of an attention module by name."""
    return forward_of(type(module)) is not None  # type: ignore[arg-type]


def is_replaceable(module: nn.Module) -> bool:
    """Whether this is MPNet's or DeBERTa-v2's attention, also after a swap."""
    kind = getattr(type(module), "sparing_original", type(module))
    return (kind.__module__, kind.__name__) in _REPLACEABLE


def config_of(model: nn.Module, name: str, module: Any) -> Any:
    """The configuration of a layer; MPNet's and DeBERTa's have that of a module around them."""
    config = getattr(module, "config", None)
    while config is None and name:
        name = name.rpartition(".")[0]
        config = getattr(model.get_submodule(name), "config", None)
    return config


@functools.cache
def forward_of(kind: type) -> FunctionType | None:
    """The method of a module class that calls the attention registry; None when there is none."""
    for parent in kind.__mro__:
        if parent in (nn.Module, PreTrainedModel):
            break
        for method in vars(parent).values():
            method = inspect.unwrap(method) if callable(method) else method
            if isinstance(method, FunctionType) and _REGISTRY in method.__code__.co_names:
                return method
    return None


def own_attention(module: Any, model: PreTrainedModel) -> Own:
    """transformers' own attention of a layer of a model, as its configuration names it now."""
    forward = forward_of(type(module))  # type: ignore[arg-type]
    assert forward is not None
    name = own_name(module.config, model)
    build_mask = ALL_MASK_ATTENTION_FUNCTIONS._global_mapping.get(name)
    if name != "eager":
        return Own(name, forward.__globals__[_REGISTRY][name], build_mask)
    if getattr(module, "reorder_and_upcast_attn", False):
        return Own(name, _reordered, build_mask)
    eager = [
        global_name
        for global_name in forward.__code__.co_names
        if global_name.endswith("eager_attention_forward")
    ]
    return Own(name, forward.__globals__[eager[0]], build_mask)


def own_name(config: Any, model: PreTrainedModel) -> str:
    """The name of transformers' own attention in a configuration of a model.

    A configuration copied from a swapped model has sparing's name: then it is the default of the
    model's class.
    """
    name: str = config._attn_implementation
    return model.get_correct_attn_implementation(None) if name == NAME else name


def _reordered(
    module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **_: Any
) -> tuple[Tensor, Tensor | None]:
    """GPT-2's upcast attention, which it chooses itself only while it is called eager."""
    return module._upcast_and_reordered_attn(query, key, value, mask)  # type: ignore[no-any-return]


def token_limit(model: PreTrainedModel, layer: AttentionLayer) -> int | None:
    """The longest sequence that the layer's tower has positions for; None when it is unknown."""
    config: Any = config_of(model, layer.name, layer.module)
    limit = getattr(config, "max_position_embeddings", None)
    parents = layer.name.split(".")
    while parents:
        parents.pop()
        tower = model.get_submodule(".".join(parents))
        for name, embedding in tower.named_modules():
            if _is_of_positions(name) and isinstance(embedding, nn.Embedding):
                first = 0 if embedding.padding_idx is None else embedding.padding_idx + 1
                if limit in (None, embedding.num_embeddings):
                    return int(embedding.num_embeddings - first)
        for name, parameter in tower.named_parameters():
            if limit is None and _is_of_positions(name) and parameter.ndim == 3:
                return int(parameter.shape[1])
    limit = None if layer.biased else limit  # distances have no end
    return limit if isinstance(limit, int) else None


def _is_of_positions(name: str) -> bool:
    return name.rpartition(".")[2] in ("position_embeddings", "position_embedding", "pos_embed")


def projection_names(module: nn.Module) -> dict[str, str]:
    """The names of the modules that make q, k and v; a fused one counts for all three."""
    for names in _SPLIT_PROJECTIONS:
        if all(isinstance(getattr(module, name, None), nn.Module) for name in names):
            return dict(zip("qkv", names, strict=True))
    for name in _FUSED_PROJECTIONS:
        if isinstance(getattr(module, name, None), nn.Module):
            return dict.fromkeys("qkv", name)
    return {}


def reads_one_input(layer: AttentionLayer) -> bool:
    """Whether q, k and v come from the same input, as wide as the model, as far as known."""
    parts = [getattr(layer.module, name) for name in projection_names(layer.module).values()]
    widths = {part.in_features for part in parts if isinstance(part, nn.Linear)}
    return widths <= {layer.width}


def projection_weights(layer: AttentionLayer) -> dict[str, Tensor]:
    """The layer's projections as q, k, v (heads x dim, width) and q_bias, ..., one row per head.

    Keys and values of grouped models are repeated for every query head; q is scaled so that its
    products over sqrt(dim) are the layer's scores. Empty when the layer keeps its projections in
    an unknown form, such as head by head.
    """
    names = projection_names(layer.module)
    if getattr(layer.module, "multi_query", True) is False:
        return {}
    scaling, usual = scaling_of(layer.module), layer.dim**-0.5
    scale = 1.0 if scaling is None or scaling == usual else float(scaling) / usual
    weights: dict[str, Tensor] = {}
    for index, (stream, name) in enumerate(names.items()):
        projection = getattr(layer.module, name)
        weight, bias = projection.weight.detach(), getattr(projection, "bias", None)
        if type(projection).__name__ == "Conv1D":
            weight = weight.T
        if len(set(names.values())) == 1:
            sizes = _fused_sizes(weight, layer)
            weight = weight.split(sizes)[index]
            bias = None if bias is None else bias.split(sizes)[index]
        factor = scale if stream == "q" else 1.0
        weights[stream] = _per_query_head(weight * factor, layer)
        if bias is not None:
            weights[f"{stream}_bias"] = _per_query_head(bias.detach() * factor, layer)
    return weights


def scaling_of(module: Any) -> float | None:
    """What a layer multiplies its products of queries and keys with; None for 1 / sqrt(dim)."""
    kinds = getattr(module, "pos_att_type", None)
    if kinds is None:
        scaling: float | None = getattr(module, "scaling", None)
        return scaling
    terms = 1 + ("c2p" in kinds) + ("p2c" in kinds)
    # DeBERTa takes this root in float32, whatever the model's type is
    root = torch.sqrt(torch.tensor(module.attention_head_size, dtype=torch.float) * terms)
    return 1 / float(root)


def _fused_sizes(weight: Tensor, layer: AttentionLayer) -> list[int]:
    """The rows of q, k and v in one projection; keys and values may have fewer heads."""
    queries = layer.heads * layer.dim
    others = (weight.shape[0] - queries) // 2
    return [queries, others, others]


def has_rotary(module: nn.Module) -> bool:
    """Whether a layer rotates queries and keys by their positions, after its projections."""
    forward = forward_of(type(module))  # type: ignore[arg-type]
    return forward is not None and "position_embeddings" in inspect.signature(forward).parameters


def _per_query_head(rows: Tensor, layer: AttentionLayer) -> Tensor:
    groups = rows.shape[0] // layer.dim
    heads = rows.reshape(groups, layer.dim, *rows.shape[1:])
    return heads.repeat_interleave(layer.heads // groups, 0).flatten(0, 1)


def _describe(model: PreTrainedModel, name: str, module: Any, index: int | None) -> AttentionLayer:
    config = config_of(model, name, module)
    heads = _first(module, *HEAD_COUNTS) or getattr(config, "num_attention_heads", 0)
    width = _first(module, "embed_dim") or getattr(config, "hidden_size", 0)
    dim = _first(module, "attention_head_size", "head_dim") or (width // heads if heads else 0)
    obstacle = "" if is_replaceable(module) else _obstacle(model, name, module)
    if not obstacle and not (heads and dim and width):
        obstacle = "the number or the width of its heads is unknown"
    return AttentionLayer(
        name,
        module,
        index,
        obstacle,
        heads,
        dim,
        width,
        _causal(model, name, module),
        _dropout(module),
        biased=is_replaceable(module) and getattr(module, "relative_attention", True),
        window=_window(model, name, module),
    )


def _causal(model: PreTrainedModel, name: str, module: Any) -> bool:
    """Whether tokens see only earlier tokens.

    CLIP's attention is one class for text and images and has no causal flag: its text tower passes
    it at each call.
    """
    said = getattr(module, "is_causal", None)
    if said is None:  # some encoders' attention has no flag
        said = getattr(getattr(module, "config", None), "is_decoder", False)
    made = _words_of_tower(model, name)
    return bool(said) or ("create_causal_mask" in made and "create_bidirectional_mask" not in made)


def _words_of_tower(model: PreTrainedModel, name: str) -> tuple[str, ...]:
    """The names used in the forward of the model directly around a layer."""
    parents = name.split(".")
    while parents:
        parents.pop()
        tower = model.get_submodule(".".join(parents))
        if isinstance(tower, PreTrainedModel):
            code = getattr(inspect.unwrap(type(tower).forward), "__code__", None)
            return () if code is None else (*code.co_names, *code.co_varnames)
    return ()


def _first(module: nn.Module, *names: str) -> int:
    values = (getattr(module, name, None) for name in names)
    return next((value for value in values if isinstance(value, int)), 0)


def _dropout(module: nn.Module) -> float:
    for name in ("attention_dropout", "attn_dropout", "dropout"):
        value = getattr(module, name, None)
        value = value.p if isinstance(value, nn.Dropout) else value
        if isinstance(value, float):
            return value
    return 0.0


def _is_cross(name: str, module: nn.Module) -> bool:
    nearby = name.lower().split(".")[-2:]
    said = getattr(module, "is_cross_attention", False) is True
    named = "cross" in "".join((type(module).__name__.lower(), *nearby))
    return said or named or nearby[-1].startswith("encoder_attn")


def _obstacle(model: PreTrainedModel, name: str, module: Any) -> str:
    """Why no mechanism can replace this layer; empty when nothing is known against it."""
    if any(getattr(module, count, None) == 0 for count in HEAD_COUNTS):
        return "all its heads were pruned"
    if _is_cross(name, module):
        return "it is cross-attention"
    if model.config.is_encoder_decoder and "decoder" in name.split("."):
        return "it belongs to the decoder of an encoder-decoder model"
    if "extended_attention_mask" in _words_of_tower(model, name):
        return "its model passes every layer a finished mask"
    if _is_sliding(module) and _window(model, name, module) is None:
        return "it attends within a sliding window of its own"
    if any(getattr(module, cap, None) for cap in ("attn_logit_softcapping", "softcap")):
        return "it caps its scores"
    if isinstance(getattr(module, "sinks", None), Tensor):
        return "it has attention sinks"
    if has_position_bias(module):
        return "it adds a position bias to its scores"
    dims = (getattr(module.config, name, None) for name in ("v_head_dim", "qk_head_dim"))
    if len({*dims}) > 1:
        return "its values are of another width than its keys"
    return ""


def _is_sliding(module: Any) -> bool:
    config = module.config
    kinds = getattr(config, "layer_types", None)
    index = getattr(module, "layer_idx", None)
    if kinds and isinstance(index, int) and index < len(kinds):
        return bool(kinds[index] != "full_attention")
    if hasattr(module, "sliding_window"):
        return module.sliding_window is not None
    return getattr(config, "sliding_window", None) is not None and bool(
        getattr(config, "use_sliding_window", True)
    )


def _window(model: PreTrainedModel, name: str, module: Any) -> int | None:
    """How far a layer with a sliding window sees in both directions; None for any other layer."""
    tokens = getattr(getattr(module, "config", None), "sliding_window", None)
    both_ways = "create_bidirectional_sliding_window_mask" in _words_of_tower(model, name)
    if not both_ways or type(tokens) is not int or _causal(model, name, module):
        return None
    return tokens if _is_sliding(module) else None


def has_position_bias(module: nn.Module) -> bool:
    """Whether a layer adds a position bias to its scores, head by head."""
    parts = [name for name, _ in module.named_parameters()]
    named = hasattr(module, "has_relative_attention_bias") or is_replaceable(module)
    return named or any("relative" in part for part in parts)


def parameter_kind(module: nn.Module) -> tuple[torch.device, torch.dtype]:
    """The device and floating type of a layer's parameters."""
    for parameter in module.parameters():
        if parameter.is_floating_point():
            return parameter.device, parameter.dtype
    raise Unsupported(
        f"{type(module).__name__} has no floating-point parameters, so its type is unknown"
    )
