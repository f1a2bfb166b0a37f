"""The one attention function and the one mask function that transformers calls by name.

transformers looks both up under the name of the implementation in a model's configuration. A name
with an attention function alone would silently get no mask, so both are registered together. There
is one name for a whole model; each layer's module holds its mechanism.
"""

from __future__ import annotations

import math
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import (
    and_masks,
    bidirectional_mask_function,
    causal_mask_function,
    sliding_window_bidirectional_mask_function,
)
from transformers.utils import output_capturing

from sparing.core.errors import Unsupported, UsageError
from sparing.core.mask import Mask
from sparing.core.tracing import is_traced

NAME = "sparing"
# Arguments that a mechanism cannot honour; transformers passes most only to some families.
_REFUSED = frozenset(
    {"softcap", "position_bias", "s_aux", "sliding_window", "head_mask", "cache", "attention_bias"}
)
_ALL_STREAMS = ("q", "k", "v")


@dataclass(frozen=True)
class Own:
    """transformers' own attention of one layer: its name, its function, its mask function.

    ``build_mask`` is None where transformers has none for that name and so passes no mask.
    """

    name: str
    attend: Callable[..., tuple[Tensor, Tensor | None]]
    build_mask: Callable[..., Any] | None


@dataclass
class LayerState:
    """sparing's state of an attention layer besides the mechanism; none of it is saved.

    ``inputs`` holds the layer's input between its pre-hook and the attention call, for mechanisms
    that read x, by thread: several may call one model at once.
    """

    name: str
    original: Own
    inputs: dict[int, Tensor] = field(default_factory=dict)
    hook: RemovableHandle | None = None

    def note(self, x: Tensor) -> None:
        """Keep the input of the call that this thread is making."""
        self.inputs[_thread()] = x

    def take(self) -> Tensor | None:
        """The input that this thread stored; it is removed."""
        return self.inputs.pop(_thread(), None)


def _thread() -> int:
    """The calling thread; a traced graph passes the input on without it."""
    return 0 if torch.compiler.is_compiling() else threading.get_ident()


@dataclass
class HandedMask:
    """The object that a model passes to its layers instead of a dense mask.

    ``mask`` is for swapped layers: plain causal, plain bidirectional, or ``window`` tokens in both
    directions. It is None for any other (a window of the past, packed sequences, a caller's
    overlay). Keys from ``end`` on are slots of a cache
    that are not filled yet; None where all are. ``dense`` builds transformers' own mask for the
    other layers, once for each kind of attention that needs it.
    """

    mask: Mask | None
    end: int | None
    request: dict[str, Any]
    window: int | None = None
    built: dict[str, Any] = field(default_factory=dict)
    # ``generate`` may prepare the mask itself and treats it as the 4-D tensor that it represents
    ndim: ClassVar[int] = 4

    def contiguous(self) -> HandedMask:
        """The mask itself, for callers that expect a tensor."""
        return self

    def dense(self, original: Own) -> Any:
        """The mask exactly as transformers would have built it for this attention."""
        if original.name not in self.built:
            build = original.build_mask
            self.built[original.name] = None if build is None else build(**self.request)
        return self.built[original.name]


def register() -> None:
    """Register the name with transformers: the attention and its mask, always both."""
    AttentionInterface.register(NAME, attention)
    AttentionMaskInterface.register(NAME, hand_on_mask)


def hand_on_mask(**request: Any) -> HandedMask:
    """transformers' mask function: keep the padding and do not build the square.

    The padding's values are read (is anything padded at all?) only where nothing is traced.
    """
    if isinstance(request["attention_mask"], HandedMask):
        return request["attention_mask"]
    function = request["mask_function"]
    causal = function is causal_mask_function
    window = None if causal else _window_of(function)
    if not causal and window is None and function is not bidirectional_mask_function:
        return HandedMask(None, None, request)
    end = _filled(request) if causal else None
    keep = _keep(request["attention_mask"], request["kv_length"], request["kv_offset"])
    if keep is None:
        # a new one for each call: a mask keeps the squares that its layers request
        return HandedMask(Mask(causal=causal), end, request, window)
    return HandedMask(Mask(keep if end is None else keep[:, :end], causal), end, request, window)


def _window_of(function: Any) -> int | None:
    """The width of transformers' plain window in both directions; None for another mask."""
    parts = _masks_in(function)
    if len(parts) != 2 or parts[1] is not bidirectional_mask_function:
        return None
    near, bound = parts[0], getattr(parts[0], "__closure__", None)
    known = _masks_in(sliding_window_bidirectional_mask_function(1))[0]
    width = bound[0].cell_contents if bound and near.__code__ is known.__code__ else None
    return width if type(width) is int else None


def _masks_in(function: Any) -> tuple[Any, ...]:
    """The functions that a function intersects the masks of; none for any other function."""
    code = getattr(function, "__code__", None)
    if code is not and_masks(bidirectional_mask_function).__code__:
        return ()
    return tuple(function.__closure__[0].cell_contents)


def _filled(request: dict[str, Any]) -> int | None:
    """How many of the keys the last query may see; None for all, unless a cache has free slots."""
    end = request["q_offset"] + request["q_length"] - request["kv_offset"]
    if isinstance(end, Tensor):
        if torch.compiler.is_compiling():
            raise Unsupported(
                "a cache of fixed size cannot be compiled with swapped attention; "
                "generate with the dynamic cache or with use_cache=False"
            )
        end = int(end)
    return None if end == request["kv_length"] else end


def _keep(padding: Tensor | None, keys: int, offset: int) -> Tensor | None:
    """The padding (batch, keys), true for real tokens; None when no key is padded."""
    if padding is None:
        return None
    if padding.shape[1] < keys + offset:
        padding = F.pad(padding, (0, keys + offset - padding.shape[1]))
    if offset or padding.shape[1] > keys:
        padding = padding[:, offset : offset + keys]
    if not is_traced() and bool(padding.all()):
        return None
    return padding


def attention(
    module: nn.Module,
    query: Float[Tensor, "batch heads queries dim"],
    key: Float[Tensor, "batch key_heads keys dim"],
    value: Float[Tensor, "batch key_heads keys value_dim"],
    attention_mask: Any,
    **kwargs: Any,
) -> tuple[Float[Tensor, "batch queries heads value_dim"], Tensor | None]:
    """transformers' attention function: the layer's mechanism, or transformers' own attention.

    Key and value may have fewer heads than the query (grouped keys). Weights are never returned by
    a mechanism. Raises ``Unsupported`` for arguments that the mechanism would have to ignore.
    """
    mechanism = module._modules.get(NAME)
    if mechanism is None:
        return _own_attention(module, query, key, value, attention_mask, kwargs)
    obstacle = _obstacle(attention_mask, kwargs)
    if obstacle:
        _warn_of_own(module, obstacle)
        return _own_attention(module, query, key, value, attention_mask, kwargs)
    window = None if attention_mask is None else attention_mask.window
    _refuse(module, kwargs if window is None else {**kwargs, "sliding_window": None})
    mask = _mask(module, query, attention_mask, kwargs)
    if mask.keep is not None and mask.keep.shape[1] != key.shape[2]:
        keys = mask.keep.shape[1]
        key, value = key[:, :, :keys], value[:, :, :keys]
    elif attention_mask is not None and attention_mask.end is not None:
        key, value = key[:, :, : attention_mask.end], value[:, :, : attention_mask.end]
    scaling = kwargs.get("scaling")
    if scaling is not None and scaling != query.shape[3] ** -0.5:
        query = query * (scaling * math.sqrt(query.shape[3]))
    if key.shape[1] != query.shape[1]:
        key, value = _repeat(key, query.shape[1]), _repeat(value, query.shape[1])
    streams = _streams(module, mechanism, query, key, value, mask)
    more = {} if window is None else {"bias": _band(mechanism, attention_mask, query)}
    mixed = mechanism(*streams, mask=mask, **more).transpose(1, 2)
    if torch.onnx.is_in_onnx_export():
        # a contiguous tensor may not be one after the exporter has decomposed the operations
        return mixed.clone(memory_format=torch.contiguous_format), None
    return mixed.contiguous(), None


def _own_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    handed: Any,
    kwargs: dict[str, Any],
) -> tuple[Tensor, Tensor | None]:
    """transformers' own attention with its own mask, bit for bit."""
    state = _state(module)
    state.take()
    original = state.original
    mask = handed.dense(original) if isinstance(handed, HandedMask) else handed
    if isinstance(mask, Tensor) and mask.device != query.device:
        mask = mask.to(query.device)
    return original.attend(module, query, key, value, mask, **kwargs)


def _state(module: nn.Module) -> LayerState:
    state = module.__dict__.get("sparing_state")
    if state is None:
        raise UsageError(
            f"{type(module).__name__} uses {NAME!r} attention and has no mechanism, as in a model "
            "built from a swapped model's configuration; call sparing.swap(model, mechanism), or "
            "sparing.unswap(model) for its own attention"
        )
    return state  # type: ignore[no-any-return]


def _obstacle(handed: Any, kwargs: dict[str, Any]) -> str:
    """Why transformers' own attention must serve this call; empty when there is no reason."""
    if kwargs.get("output_attentions") or weights_are_collected():
        return "attention weights were requested"
    if handed is None:
        return ""
    if not isinstance(handed, HandedMask):
        return "the caller gave a ready-made mask"
    if handed.mask is not None:
        return ""
    if handed.request.get("local_size") is not None:
        return "the mask is a sliding window"
    if torch.compiler.is_compiling() and handed.request["attention_mask"] is None:
        raise Unsupported(
            "give attention_mask when exporting or compiling a swapped decoder: without one "
            "transformers takes its input for packed sequences"
        )
    return "the mask is not plain padding or causality (packed sequences, for one)"


def weights_are_collected() -> bool:
    """Whether transformers' output hooks wait for attention weights (some models drop the flag)."""
    collected = output_capturing._active_collector.get()
    return bool(collected) and "attentions" in collected


def _warn_of_own(module: nn.Module, obstacle: str) -> None:
    if not torch.compiler.is_compiling():
        name = _state(module).name
        warnings.warn(f"{name} used transformers' own attention: {obstacle}", stacklevel=4)


def _refuse(module: nn.Module, kwargs: dict[str, Any]) -> None:
    for name in sorted(_REFUSED & kwargs.keys()):
        if kwargs[name] is not None:
            raise Unsupported(
                f"{_state(module).name}: swapped attention cannot honour {name}; "
                "leave this layer out of the swap"
            )


def _mask(
    module: nn.Module, query: Tensor, handed: HandedMask | None, kwargs: dict[str, Any]
) -> Mask:
    """The mask of the swapped layer; without any, the layer says if it is causal."""
    if handed is None:
        causal = kwargs.get("is_causal")
        causal = getattr(module, "is_causal", True) if causal is None else causal
        return Mask(causal=bool(causal))
    mask = handed.mask
    assert mask is not None
    if mask.keep is not None and mask.keep.device != query.device:
        return Mask(mask.keep.to(query.device), mask.causal)
    return mask


def _band(mechanism: Any, handed: HandedMask, query: Tensor) -> Tensor | None:
    """A bias that hides what is outside the layer's window; None where none is needed or taken.

    A mechanism that takes none sees everything: ``swap`` allows that only for layers that are
    named.
    """
    assert handed.window is not None
    reach = getattr(mechanism, mechanism.bounded_by, None) if mechanism.bounded_by else None
    if not mechanism.takes_bias or (reach is not None and reach <= handed.window):
        return None
    heads, tokens = query.shape[1], query.shape[2]
    key = f"{query.dtype} {query.device}"
    if key not in handed.built:
        places = torch.arange(tokens, device=query.device)
        outside = (places - places[:, None]).abs() > handed.window
        least = torch.finfo(query.dtype).min
        handed.built[key] = query.new_zeros(1, 1, tokens, tokens).masked_fill(outside, least)
    band: Tensor = handed.built[key]
    return band.expand(-1, heads, -1, -1)


def _repeat(grouped: Tensor, heads: int) -> Tensor:
    """Each key head once for every query head of its group."""
    batch, groups, tokens, dim = grouped.shape
    spread = grouped[:, :, None].expand(batch, groups, heads // groups, tokens, dim)
    return spread.reshape(batch, heads, tokens, dim)


def _streams(
    module: nn.Module, mechanism: Any, query: Tensor, key: Tensor, value: Tensor, mask: Mask
) -> tuple[Tensor, ...]:
    """The streams of the mechanism, in its order; ``Unsupported`` where a cache hides some."""
    queries, keys = query.shape[2], key.shape[2]
    names = mechanism.streams
    if queries != keys and ("x" in names or not (mask.causal or mechanism.traits.cross)):
        raise Unsupported(
            f"{_state(module).name}: {_mechanism_name(mechanism)} got {queries} queries and {keys} "
            "keys; it cannot decode with a cache, give use_cache=False"
        )
    if names == _ALL_STREAMS:
        return (query, key, value)
    streams = {"q": query, "k": key, "v": value}
    if "x" in names:
        noted = _state(module).take()
        if noted is None:  # taken by an earlier call
            raise Unsupported(
                f"{_state(module).name} calls attention several times, and "
                f"{_mechanism_name(mechanism)} reads the layer's input, which serves one call: "
                "leave this layer out of the swap"
            )
        # autocast lowers the outputs of projections, not their inputs
        streams["x"] = noted.to(query.dtype)
    return tuple(streams[name] for name in names)


def _mechanism_name(mechanism: Any) -> str:
    return type(mechanism).__module__.rpartition(".")[2]


register()
