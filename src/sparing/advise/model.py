"""The model to advise on: opened, made dense, described, with inputs for it."""

from __future__ import annotations

import copy
import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import PreTrainedModel

from sparing.core.errors import Unsupported, UsageError
from sparing.foreign.pretrained import open_tokenizer
from sparing.models import MODELS, build_model
from sparing.models.shared.quiet import quiet
from sparing.models.shared.shape import image_config
from sparing.transfer.layers import AttentionLayer, find_layers, token_limit
from sparing.transfer.opening import open_model
from sparing.transfer.swap import is_swapped, unswap
from sparing.transfer.unwrapping import require_transformers

Inputs = dict[str, Tensor]
DEFAULT_TOKENS = 512
BASE_SIZES = {"layers": 12, "heads": 12, "width": 768, "feed_forward_dim": 3072}


@dataclass(frozen=True)
class Subject:
    """A model with transformers' attention, and its sizes.

    ``as_given`` is the model as given if it was swapped, else None. ``layers`` are its attention
    layers; ``obstacle`` is why none can be swapped (empty if one can). ``heads``, ``dim``,
    ``width`` and ``causal`` are those of the first layer that can be swapped, or the
    configuration's. ``limit`` is the longest sequence with positions, None if unknown; an image
    model always reads ``limit`` tokens.
    """

    name: str
    model: PreTrainedModel
    as_given: PreTrainedModel | None
    layers: tuple[AttentionLayer, ...]
    obstacle: str
    heads: int
    dim: int
    width: int
    causal: bool
    limit: int | None
    reads: Literal["tokens", "images"]

    @property
    def kind(self) -> str:
        """The model's class."""
        return type(self.model).__name__

    @property
    def served(self) -> tuple[AttentionLayer, ...]:
        """The self-attention layers that any mechanism can replace."""
        return tuple(layer for layer in self.layers if layer.plain)


def open_subject(model: str | torch.nn.Module, tokens: int | None = None) -> Subject:
    """Open a folder, a hub name, a built-in model (``bert`` or ``vit`` of base size), or take one.

    A model given as an object is not changed: a copy of its modules shares its weights. Raises
    ``UsageError`` if there is no such model and ``CheckpointError`` for damaged files.
    """
    if isinstance(model, str):
        name, opened = model, _open(model, tokens)
    else:
        inner = require_transformers(model, "advise")
        name, opened = inner.name_or_path or type(inner).__name__, sharing_copy(inner)
    opened.eval()
    as_given = None
    if is_swapped(opened):
        as_given = opened
        opened = sharing_copy(opened)
        unswap(opened)
    for instance in (opened, *([] if as_given is None else [as_given])):
        if getattr(instance.config, "pad_token_id", 0) is None:
            # classifiers of decoders refuse batches without one; their answers are not used here
            instance.config.pad_token_id = 0
    return _described(name, opened, as_given)


def sharing_copy(model: PreTrainedModel) -> PreTrainedModel:
    """A copy with new modules and configuration that shares the original's weights."""
    shared = (*model.parameters(), *model.buffers())
    return copy.deepcopy(model, {id(tensor): tensor for tensor in shared})


def resolve_tokens(subject: Subject, tokens: int | None) -> int:
    """The length to advise on: the given one, within the limit of the model.

    Raises ``UsageError`` naming the limit.
    """
    if tokens is not None and tokens < 1:
        raise UsageError(f"--tokens must be at least 1; got {tokens}")
    limit = subject.limit
    if subject.reads == "images":
        if limit is None:
            raise Unsupported(f"{subject.kind} does not say how many tokens an image has")
        if tokens not in (None, limit):
            raise UsageError(f"{subject.name} makes {limit} tokens of an image, not {tokens}")
        return limit
    if tokens is None:
        return DEFAULT_TOKENS if limit is None else min(limit, DEFAULT_TOKENS)
    if limit is not None and tokens > limit:
        raise UsageError(f"{subject.name} reads at most {limit} tokens; got --tokens {tokens}")
    return tokens


def random_inputs(subject: Subject, batch: int, tokens: int) -> Inputs:
    """A full batch without pads, as from a tokenizer; or random images."""
    model, config = subject.model, subject.model.config
    generator = torch.Generator().manual_seed(0)
    if subject.reads == "images":
        sizes = image_config(config)
        size = sizes.image_size
        height, width = size if isinstance(size, list | tuple) else (size, size)
        images = torch.randn((batch, sizes.num_channels, height, width), generator=generator)
        return {"pixel_values": images.to(model.device, model.dtype)}
    text = config.get_text_config()
    special = {
        getattr(text, f"{kind}_token_id", None) for kind in ("pad", "bos", "eos", "cls", "sep")
    }
    plain = torch.tensor([number for number in range(text.vocab_size) if number not in special])
    ids = plain[torch.randint(0, len(plain), (batch, tokens), generator=generator)]
    if config.is_encoder_decoder and isinstance(text.eos_token_id, int):
        ids[:, -1] = text.eos_token_id  # its classifiers read the answer there
    return completed(model, {"input_ids": ids, "attention_mask": torch.ones_like(ids)})


def completed(model: PreTrainedModel, inputs: Inputs) -> dict[str, Any]:
    """Token inputs on the model's device, with the other arguments of its forward.

    No cache is used: one pass over the whole text is measured.
    """
    known = inspect.signature(model.forward).parameters
    given: dict[str, Any] = {name: tensor.to(model.device) for name, tensor in inputs.items()}
    if model.config.is_encoder_decoder and "decoder_input_ids" in known:
        given["decoder_input_ids"] = given["input_ids"]
    if "use_cache" in known:
        given["use_cache"] = False
    return given


def tokenizer_of(name: str) -> Any:
    """The tokenizer in a model's folder.

    Raises ``UsageError`` if there is none: transformers would build an empty one instead.
    """
    missing = f"--texts needs a tokenizer, and there is none at {name!r}"
    if name in MODELS.names() and not Path(name).is_dir():
        raise UsageError(f"{missing}: the built-in models have random weights and read no text")
    with quiet():
        try:
            tokenizer = open_tokenizer(name)
        except Exception as error:  # a damaged file ends in any
            reason = str(error).strip().partition("\n")[0] or type(error).__name__
            raise UsageError(f"{missing} ({reason})") from error
    if len(tokenizer) <= len(tokenizer.all_special_tokens):
        raise UsageError(f"{missing}; save_pretrained of the tokenizer writes it there")
    return tokenizer


def _described(name: str, model: PreTrainedModel, as_given: PreTrainedModel | None) -> Subject:
    reads: dict[str, Literal["tokens", "images"]] = {
        "input_ids": "tokens",
        "pixel_values": "images",
    }
    if model.main_input_name not in reads:
        raise Unsupported(
            f"advise measures models of tokens or images; {type(model).__name__} reads "
            f"{model.main_input_name}"
        )
    if all(hasattr(model, f"get_{kind}_features") for kind in ("text", "image")):
        raise Unsupported(
            f"{type(model).__name__} reads texts and images together: save one of its towers "
            "alone and give that"
        )
    layers, obstacle = _layers(model)
    served = [layer for layer in layers if layer.plain]
    if layers and not served:
        window = "it attends within a sliding window of its own"
        reasons = sorted({layer.obstacle or window for layer in layers if layer.index is not None})
        obstacle = "no layer can be swapped: " + "; ".join(reasons)
    if served:
        first = served[0]
        sizes = (first.heads, first.dim, first.width, first.causal)
    else:
        sizes = _configured_sizes(model)
    limit = _limit(model, layers)
    return Subject(
        name, model, as_given, layers, obstacle, *sizes, limit, reads[model.main_input_name]
    )


def _configured_sizes(model: PreTrainedModel) -> tuple[int, int, int, bool]:
    """Heads, features of one, width and causality, from the configuration."""
    config = model.config.get_text_config()
    heads, width = (getattr(config, name, None) for name in ("num_attention_heads", "hidden_size"))
    if not isinstance(heads, int) or not isinstance(width, int):
        raise Unsupported(
            f"{type(model).__name__} does not say how many heads of what width it has"
        )
    dim = getattr(config, "head_dim", None) or width // heads
    return heads, dim, width, bool(getattr(config, "is_decoder", False))


def _limit(model: PreTrainedModel, layers: tuple[AttentionLayer, ...]) -> int | None:
    """The longest sequence that every self-attention layer has positions for."""
    if layers:
        limits = [token_limit(model, layer) for layer in layers if layer.index is not None]
        return min((limit for limit in limits if limit is not None), default=None)
    limit = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, torch.nn.Embedding):
            first = 0 if module.padding_idx is None else module.padding_idx + 1
            return module.num_embeddings - first
    return limit if isinstance(limit, int) and limit > 0 else None


def _layers(model: PreTrainedModel) -> tuple[tuple[AttentionLayer, ...], str]:
    try:
        layers = tuple(find_layers(model))
        if any(layer.biased for layer in layers):
            return (), (
                "its attention is outside transformers' registry and adds a bias by distance: "
                "sparing.swap serves it, advise does not measure that"
            )
        return layers, ""
    except Unsupported as error:
        return (), str(error)


def _open(name: str, tokens: int | None) -> PreTrainedModel:
    if name in MODELS.names() and not Path(name).exists():
        return _built_in(name, tokens)
    return open_model(name, MODELS.names())


@dataclass(frozen=True)
class _Sized:
    """What a built-in model needs of a task: the sizes of the published base models."""

    kind: Literal["image", "tokens"]
    tokens: int
    name: str = "advise"
    answer: Literal["class", "labels", "number", "entities", "span", "vector"] = "class"
    labels: tuple[str, ...] = ("a", "b")
    token_types: int = 1
    vocabulary: int = 30522
    pad_id: int = 0
    image_size: int = 224
    channels: int = 3
    patch_size: int = 16
    tokenizer: Any = None


def _built_in(name: str, tokens: int | None) -> PreTrainedModel:
    """A model of base size with random weights: times do not depend on their values."""
    kind: Literal["image", "tokens"] = "image" if name == "vit" else "tokens"
    return build_model(name, _Sized(kind, max(DEFAULT_TOKENS, tokens or 0)), **BASE_SIZES)
