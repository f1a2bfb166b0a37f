"""Rows to their lowest cosine frequencies and back, in half precision without its loss."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sparing.core.tracing import is_traced
from sparing.mechanisms.shared.lowrank.along_tokens import along_tokens, are_together
from sparing.mechanisms.shared.products import HALVES, in_parts


@dataclass(frozen=True)
class Cosines:
    """The first ``frequencies`` rows C of the orthonormal DCT-II, for all rows or for each.

    ``table`` (rows or 1, parts, tokens) is C; for half types C as a sum of two halves, then the
    first of them again. ``filled`` marks the frequencies that a row has (None: all).
    """

    table: Tensor
    frequencies: int
    filled: Bool[Tensor, "batch frequencies"] | None = None

    def of(
        self, stream: Float[Tensor, "batch heads tokens dim"]
    ) -> Float[Tensor, "batch heads frequencies dim"]:
        """C times a stream, at least in float32."""
        slots = along_tokens(
            self.table[:, : (1 + (stream.dtype in HALVES)) * self.frequencies], stream
        )
        return slots.view(*slots.shape[:2], -1, self.frequencies, slots.shape[3]).sum(2)

    def back(
        self, slots: Float[Tensor, "batch heads frequencies dim"], like: Tensor
    ) -> Float[Tensor, "batch heads tokens dim"]:
        """C transposed times slots, in the type and the memory layout of a stream."""
        batch, heads, tokens, dim = like.shape
        together = self.filled is not None or are_together(like)
        rows = slots.transpose(1, 2).flatten(2) if together else slots.flatten(0, 1)
        if like.dtype in HALVES:
            first, second = in_parts(rows, like.dtype, 2)
            rows = torch.cat([first, first, second], 1)
        mixed = torch.bmm(self.table.mT.expand(len(rows), -1, -1), rows)
        if together:
            return mixed.view(batch, tokens, heads, dim).transpose(1, 2)
        return mixed.view(batch, heads, tokens, dim)


def cosines(stream: Float[Tensor, "batch heads tokens dim"], frequencies: int) -> Cosines:
    """For rows without pads; kept for the next call at this length."""
    sizes = stream.shape[2], min(frequencies, stream.shape[2]), stream.dtype, stream.device
    # Tensors of another kind belong to a trace; those without values cost nothing to make again.
    if type(stream) is not Tensor or is_traced() or stream.is_meta:
        return Cosines(_whole(*sizes), sizes[1])
    return Cosines(_cached(*sizes), sizes[1])


def cosines_of_rows(
    stream: Float[Tensor, "batch heads tokens dim"],
    frequencies: int,
    first: Int[Tensor, " batch"],
    span: Int[Tensor, " batch"],
) -> Cosines:
    """For each row's own start and length; zero at its pads and above its highest frequency."""
    tokens, dtype = stream.shape[2], stream.dtype
    frequencies = min(frequencies, tokens)
    position = torch.arange(tokens, device=stream.device) - first.unsqueeze(1)
    filled = torch.arange(frequencies, device=stream.device) < span.unsqueeze(1)
    inside = ((position >= 0) & (position < span.unsqueeze(1))).unsqueeze(1)
    length = span.clamp(min=1)[:, None, None]
    waves = _waves(position.unsqueeze(1), length, frequencies, dtype)
    return Cosines(_table(waves.where(inside & filled.unsqueeze(2), 0), dtype), frequencies, filled)


@lru_cache(maxsize=4)
def _cached(tokens: int, frequencies: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    # A tensor made in inference mode cannot be used in training later.
    with torch.inference_mode(False):
        return _whole(tokens, frequencies, dtype, device)


def _whole(tokens: int, frequencies: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    position = torch.arange(tokens, device=device)[None, None]
    return _table(_waves(position, tokens, frequencies, dtype), dtype)


def _waves(
    position: Int[Tensor, "batch 1 tokens"],
    length: int | Tensor,
    frequencies: int,
    dtype: torch.dtype,
) -> Float[Tensor, "batch {frequencies} tokens"]:
    """C at least in float32: whole numbers are reduced to one turn before the cosine."""
    frequency = torch.arange(frequencies, device=position.device).unsqueeze(1)
    turned = (frequency * (2 * position + 1)) % (4 * length)
    wider = torch.promote_types(dtype, torch.float32)
    size = (frequency.clamp(max=1) + 1).to(wider) / length
    return (turned.to(wider) * (math.pi / 2) / length).cos() * size.sqrt()


def _table(waves: Float[Tensor, "rows frequencies tokens"], dtype: torch.dtype) -> Tensor:
    parts = in_parts(waves, dtype, 2)
    return torch.cat([*parts, parts[0]], 1) if len(parts) > 1 else waves
