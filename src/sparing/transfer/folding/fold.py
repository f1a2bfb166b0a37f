"""Fold what depends on a model's weights alone into constants, and undo it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.models.deberta_v2.modeling_deberta_v2 import (
    DebertaV2Encoder,
    DisentangledSelfAttention,
)

from sparing.core.errors import Unsupported, UsageError
from sparing.core.printing import fitted_lines
from sparing.transfer.folding.deberta import (
    CONSTANTS,
    KEYS,
    QUERIES,
    STATE,
    FoldedAttention,
    FoldedEncoder,
)
from sparing.transfer.folding.positions import positions_of
from sparing.transfer.unwrapping import unwrapped

# Of the check that this transformers computes attention in the known way.
_TOKENS, _TOLERANCE = 4, 1000
_KINDS = {KEYS: "position keys", QUERIES: "position queries"}


@dataclass(frozen=True)
class FoldedLayer:
    """The constants of one layer: position keys, queries or both, for each head and bucket."""

    index: int
    name: str
    heads: int
    buckets: int
    dim: int
    constants: tuple[str, ...]


@dataclass(frozen=True)
class FoldReport:
    """The layers with constants; ``constant_bytes`` is the memory of all constants together."""

    model_class: str
    layers: tuple[FoldedLayer, ...]
    constant_bytes: int

    def to_dict(self) -> dict[str, Any]:
        """The report as plain values."""
        return asdict(self)

    def __str__(self) -> str:
        """At most 40 lines."""
        lines = [
            f"{self.model_class}: {len(self.layers)} layers folded, "
            f"{self.constant_bytes / 1e6:.1f} MB of constants"
        ]
        lines += [
            f"  {layer.index}: {' and '.join(layer.constants)} of {layer.heads} heads, "
            f"{layer.buckets} buckets, {layer.dim} wide"
            for layer in self.layers
        ]
        return fitted_lines(lines)


def fold(model: nn.Module) -> FoldReport:
    """Compute what depends on weights alone once, in place: the answers stay, calls are faster.

    Takes DeBERTa-v2 and v3. transformers projects their relative embeddings in every layer at every
    call. A folded model has the results as constants, multiplies only the distances that occur at a
    length, and adds both position terms in one step. In float32 answers differ by rounding.

    Constants are used in evaluation, without gradients of the weights behind them: call the model
    under ``torch.no_grad()`` or ``torch.inference_mode()``. In training, where gradients of these
    weights are wanted, under ``torch.compile``, and where an adapter or a hook is on a projection,
    the model computes as transformers does. Weights that change are noticed, and the constants
    computed again: by ``load_state_dict``, an optimizer, ``.to`` or assignment. Writes that PyTorch
    does not count (into ``weight.data`` or NumPy's view of it) are noticed after the next change
    between ``train()`` and ``eval()``; otherwise call ``fold`` again.

    The state dict and ``save_pretrained`` are those of the model before. A second call computes the
    constants again. Raises ``UsageError`` for anything but a transformers model, and
    ``Unsupported`` with the reason of ``fold_obstacle`` where nothing can be folded; the model then
    does not change.

        print(sparing.fold(model))
    """
    model = unwrapped(model, merged=True)
    if not isinstance(model, PreTrainedModel):
        raise UsageError(f"fold needs a transformers model; got {type(model).__name__}")
    obstacle = fold_obstacle(model)
    if obstacle:
        raise Unsupported(f"fold: {obstacle}")
    fresh = [encoder for encoder in _encoders(model) if type(encoder) is DebertaV2Encoder]
    for encoder in _encoders(model):
        _fold(encoder)
    try:
        for encoder in fresh:
            _require_agreement(encoder)
    except BaseException:
        for encoder in fresh:
            _unfold(encoder)
        raise
    return _report(model)


def fold_if_possible(model: nn.Module) -> bool:
    """Fold a transformers model where something can be folded; whether that was so."""
    if fold_obstacle(model):
        return False
    fold(model)
    return True


def fold_for_phone(model: nn.Module, tokens: int) -> bool:
    """Fold a model that reads at most so many tokens; whether it was folded.

    A model is left where distances share a bucket at that length: ExecuTorch cannot lower it.
    """
    if not fold_if_possible(model):
        return False
    if all(encoder.buckets().span >= tokens - 1 for encoder in _encoders(model)):
        return True
    unfold(model)
    return False


def unfold(model: nn.Module) -> None:
    """Undo ``fold``: the model is transformers' own again, and its constants are freed.

    A model that is not folded does not change. Raises ``UsageError`` for anything but a
    transformers model.
    """
    model = unwrapped(model)
    if not isinstance(model, PreTrainedModel):
        raise UsageError(f"unfold needs a transformers model; got {type(model).__name__}")
    for encoder in _encoders(model):
        if isinstance(encoder, FoldedEncoder):
            _unfold(encoder)


def is_folded(model: nn.Module) -> bool:
    """Whether a part of the model has constants."""
    return any(isinstance(module, FoldedEncoder) for module in model.modules())


def fold_obstacle(model: nn.Module) -> str:
    """Why ``fold`` refuses a transformers model, in one sentence; empty where it does not."""
    kind = getattr(getattr(model, "config", None), "model_type", "") or type(model).__name__
    encoders = list(_encoders(model))
    if not encoders:
        return f"{kind} has no layers of DeBERTa-v2 or v3, which alone can be folded"
    return next((reason for reason in map(_obstacle, encoders) if reason), "")


def _obstacle(encoder: DebertaV2Encoder) -> str:
    if type(encoder) not in (DebertaV2Encoder, FoldedEncoder) or "forward" in vars(encoder):
        return f"the encoder is {type(encoder).__name__} with a forward of its own"
    if not encoder.relative_attention:
        return "relative_attention is off: nothing depends on weights alone"
    for index, layer in enumerate(encoder.layer):
        attention = layer.attention.self
        plain = type(attention) in (DisentangledSelfAttention, FoldedAttention)
        if not plain or "forward" in vars(attention):
            return f"layer {index} has {type(attention).__name__} as its attention"
        if not any(term in attention.pos_att_type for term in ("c2p", "p2c")):
            return "pos_att_type names neither c2p nor p2c: nothing depends on weights alone"
    if any(weight.is_meta or weight.is_inference() for weight in encoder.parameters()):
        return "weights on the meta device or made in inference mode do not count their changes"
    return ""


def _encoders(model: nn.Module) -> Iterator[Any]:
    return (module for module in model.modules() if isinstance(module, DebertaV2Encoder))


def _fold(encoder: Any) -> None:
    """Make one encoder and its attention compute by constants."""
    encoder.__class__ = FoldedEncoder
    for attention in (layer.attention.self for layer in encoder.layer):
        attention.__class__ = FoldedAttention
        for name in CONSTANTS:
            attention.register_buffer(name, None, persistent=False)
    if encoder.sources() is None:
        _unfold(encoder)
        raise Unsupported(
            "fold: an adapter, hook or parametrisation is on a projection of positions; merge or "
            "remove it first"
        )
    encoder.fold()


def _unfold(encoder: Any) -> None:
    encoder.__class__ = DebertaV2Encoder
    vars(encoder).pop(STATE, None)
    for attention in (layer.attention.self for layer in encoder.layer):
        attention.__class__ = DisentangledSelfAttention
        for name in CONSTANTS:
            attention._buffers.pop(name, None)
            attention._non_persistent_buffers_set.discard(name)


def _require_agreement(encoder: FoldedEncoder) -> None:
    """Raise ``Unsupported`` where the first layer computes otherwise than transformers itself.

    Its releases may change.
    """
    attention, embeddings = encoder.attentions()[0], encoder.get_rel_embedding().detach()
    states = embeddings[:_TOKENS].roll(1, 1)[None]
    tokens = states.shape[1]
    mask = torch.ones(1, 1, tokens, tokens, dtype=torch.bool, device=states.device)
    mask[..., -1] = False
    modes = {part: part.training for part in attention.modules()}
    try:
        attention.eval()
        with torch.no_grad():
            positions = positions_of(states, encoder.buckets())
            short = attention(states, mask, relative_pos=positions)[0]
            usual = DisentangledSelfAttention.forward
            plain = usual(attention, states, mask, rel_embeddings=embeddings)[0]
    finally:
        for part, mode in modes.items():
            part.training = mode
    _require_close(short, plain)


def _require_close(short: Tensor, plain: Tensor) -> None:
    """Raise ``Unsupported`` for outputs that differ by more than rounding."""
    largest = plain.abs().max()
    difference = (short - plain).abs().max()
    if difference > _TOLERANCE * torch.finfo(plain.dtype).eps * largest:
        raise Unsupported(
            f"fold: this transformers computes attention in another way: by {float(difference):.2g}"
        )


def _report(model: nn.Module) -> FoldReport:
    layers: list[FoldedLayer] = []
    size = 0
    for name, module in model.named_modules():
        if isinstance(module, FoldedAttention):
            tables = [table for table, _ in module.folded()]
            heads, columns, dim = getattr(module, tables[0]).shape
            layers.append(
                FoldedLayer(
                    len(layers),
                    name,
                    heads,
                    columns - 1,
                    dim,
                    tuple(_KINDS[table] for table in tables),
                )
            )
            size += sum(getattr(module, table).nbytes for table in tables)
    return FoldReport(type(model).__name__, tuple(layers), size)
