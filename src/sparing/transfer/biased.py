"""MPNet's and DeBERTa-v2's attention, replaced: both add a bias by distance to their scores.

transformers does not dispatch these modules, so a swapped one gets a class with another forward.
Everything else of the module does not change, and ``restore_forward`` gives it its own class back.
"""

from __future__ import annotations

import abc
import inspect
import math
import warnings
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Bool
from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary
from transformers.models.deberta_v2.modeling_deberta_v2 import DisentangledSelfAttention
from transformers.models.mpnet.modeling_mpnet import MPNetSelfAttention

from sparing.core.mask import Mask
from sparing.core.mechanism import Mechanism
from sparing.core.tracing import is_traced
from sparing.transfer.layers import projection_names, scaling_of
from sparing.transfer.registry import NAME, weights_are_collected

# Masks of calls in progress with their state when they were read: all layers share one.
_read: Any = WeakIdKeyDictionary()


@dataclass
class BiasedState:
    """sparing's state of a replaced layer besides the mechanism; none of it is saved.

    ``drops_bias`` says that it attends without distances.
    """

    name: str
    drops_bias: bool


def _names(kind: type[nn.Module]) -> tuple[str, ...]:
    """The arguments of a module's forward, in order."""
    return tuple(inspect.signature(kind.forward).parameters)[1:]


class _Replaced(nn.Module, abc.ABC):
    """The forward of a replaced layer; without a mechanism, or where it cannot serve, its own."""

    sparing_original: ClassVar[type[nn.Module]]
    sparing_arguments: ClassVar[tuple[str, ...]]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the layer returns, with its mechanism's mix; never attention weights."""
        module: Any = self
        mechanism = self._modules.get(NAME)
        dense = self.sparing_original.forward
        if not isinstance(mechanism, Mechanism):
            return dense(self, *args, **kwargs)
        given = dict(zip(self.sparing_arguments, args, strict=False)) | kwargs
        obstacle = _obstacle(given)
        mask = None if obstacle else self._mask(given)
        if mask is None:
            _warn(module, obstacle or "the caller gave a ready-made mask")
            return dense(self, *args, **kwargs)
        x = given["hidden_states"]
        streams = self._projected(x)
        bias = None if module.sparing_state.drops_bias else self._bias(streams, given)
        scaling = scaling_of(self)
        if scaling is not None:
            streams["q"] = streams["q"] * (scaling * math.sqrt(streams["q"].shape[3]))
        # autocast lowers the outputs of projections, not their inputs
        streams["x"] = x.to(streams["q"].dtype)
        bias = None if bias is None else bias.to(streams["q"].dtype)
        mixed = mechanism(*(streams[name] for name in mechanism.streams), mask=mask, bias=bias)
        return self._returned(mixed.transpose(1, 2).flatten(2))

    def _mask(self, given: dict[str, Any]) -> Mask | None:
        """The padding of a call, read once for all layers; None for a mask that is not padding."""
        mask: Tensor | None = given.get("attention_mask")
        if mask is None:
            return Mask()
        batch = given["hidden_states"].shape[0]
        if is_traced() or mask.is_inference():  # inference mode does not count changes of tensors
            return padding_of(self._shown(mask), batch)
        known, state = _read.get(mask), (batch, mask._version)
        if known is None or known[0] != state:
            known = _read[mask] = state, padding_of(self._shown(mask), batch)
        padding: Mask | None = known[1]
        return padding

    @abc.abstractmethod
    def _shown(self, mask: Tensor) -> Tensor:
        """The model's mask as booleans, true for pairs that are seen."""

    def _projected(self, x: Tensor) -> dict[str, Tensor]:
        """The streams q, k and v, (batch, heads, tokens, dim)."""
        module: Any = self
        batch, tokens = x.shape[:2]
        shape = (batch, tokens, module.num_attention_heads, module.attention_head_size)
        return {
            stream: getattr(module, name)(x).view(shape).transpose(1, 2)
            for stream, name in projection_names(self).items()
        }

    @abc.abstractmethod
    def _bias(self, streams: dict[str, Tensor], given: dict[str, Any]) -> Tensor | None:
        """What the layer adds to its scores, (batch, heads, queries, keys); None for nothing."""

    @abc.abstractmethod
    def _returned(self, mixed: Tensor) -> tuple[Tensor | None, ...]:
        """The layer's result from the heads beside each other, (batch, tokens, heads dim)."""


class ReplacedMPNet(_Replaced, MPNetSelfAttention):  # type: ignore[misc]  # untyped
    """MPNet's attention: a table of distances, the same for all layers, is added to the scores."""

    sparing_original = MPNetSelfAttention
    sparing_arguments = _names(MPNetSelfAttention)

    def _shown(self, mask: Tensor) -> Tensor:
        return mask if mask.dtype == torch.bool else mask > -1  # hidden: a large negative number

    def _bias(self, streams: dict[str, Tensor], given: dict[str, Any]) -> Tensor | None:
        return given.get("position_bias")

    def _returned(self, mixed: Tensor) -> tuple[Tensor | None, ...]:
        module: Any = self
        return (module.o(mixed),)


class ReplacedDeberta(_Replaced, DisentangledSelfAttention):  # type: ignore[misc]  # untyped
    """DeBERTa's attention: products of content with distances are added to the scores."""

    sparing_original = DisentangledSelfAttention
    sparing_arguments = _names(DisentangledSelfAttention)

    def _shown(self, mask: Tensor) -> Tensor:
        return mask.bool()

    def _bias(self, streams: dict[str, Tensor], given: dict[str, Any]) -> Tensor | None:
        """As transformers computes it, from its own method."""
        module: Any = self
        kinds = [kind for kind in ("c2p", "p2c") if kind in module.pos_att_type]
        if not module.relative_attention or not kinds:
            return None
        q, k = streams["q"], streams["k"]
        bias: Tensor = module.disentangled_attention_bias(
            q.flatten(0, 1),
            k.flatten(0, 1),
            given.get("relative_pos"),
            module.pos_dropout(given["rel_embeddings"]),
            1 + len(kinds),
        )
        return bias.view(*q.shape[:3], k.shape[2])

    def _returned(self, mixed: Tensor) -> tuple[Tensor | None, ...]:
        return (mixed, None)


_KINDS: dict[type[nn.Module], type[_Replaced]] = {
    kind.sparing_original: kind for kind in (ReplacedMPNet, ReplacedDeberta)
}


def replace_forward(module: nn.Module, name: str, *, drops_bias: bool) -> None:
    """Let a layer mix by its mechanism from now on, with its bias or without."""
    module.__class__ = _KINDS[getattr(type(module), "sparing_original", type(module))]
    vars(module)["sparing_state"] = BiasedState(name, drops_bias)


def restore_forward(module: nn.Module) -> None:
    """Give a replaced layer its own class back."""
    module.__class__ = type(module).sparing_original  # type: ignore[attr-defined]


def padding_of(shown: Bool[Tensor, "..."], batch: int) -> Mask | None:
    """The padding in a square of pairs that are seen; None where something else is hidden too.

    Rows of pads do not count: models fill them in different ways. A graph that is recorded cannot
    look, and takes every square for padding.
    """
    if shown.ndim != 4 or shown.shape[1] != 1:
        return None
    shown = shown[:, 0]
    keep = shown[:, 0] if shown.shape[1] == 1 else shown.diagonal(dim1=1, dim2=2)
    keep = keep.expand(batch, -1).clone()  # a view would keep the square alive
    if is_traced():
        return Mask(keep)
    if not bool(((shown == keep[:, None]) | ~keep[:, :, None]).all()):
        return None
    return Mask() if bool(keep.all()) else Mask(keep)


def _obstacle(given: dict[str, Any]) -> str:
    """Why the layer's own attention must serve a call; empty when there is no reason."""
    if given.get("output_attentions") or weights_are_collected():
        return "attention weights were requested"
    names = [name for name in ("query_states", "head_mask") if given.get(name) is not None]
    return f"the caller gave {names[0]}" if names else ""


def _warn(module: Any, obstacle: str) -> None:
    if not torch.compiler.is_compiling():
        name = module.sparing_state.name
        warnings.warn(f"{name} used transformers' own attention: {obstacle}", stacklevel=4)
