"""Sequences without pads: real tokens packed end to end, and padded again for attention.

Everything that works token by token (projections, feed-forward, norms) runs on the packed rows, so
dropped tokens and sequences are not computed. Only attention needs sequences.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sparing.core.errors import UsageError
from sparing.core.tracing import is_traced

LEAST_PADS = 0.1
"""The share of pads from which on a batch is packed: with fewer, a processor gains nothing."""


@runtime_checkable
class Layout(Protocol):
    """The layout of a batch's rows: ``Padded`` (batch, tokens, ...) or ``Packed`` (rows, ...)."""

    @property
    def visible(self) -> Bool[Tensor, "batch 1 1 tokens"] | None:
        """Which keys may be seen; None when there are no pads."""

    def to_padded(self, rows: Tensor) -> Tensor:
        """The rows as (batch, tokens, channels), for attention."""

    def to_rows(self, padded: Tensor) -> Tensor:
        """Back from (batch, tokens, channels)."""

    def first(self, rows: Tensor) -> Float[Tensor, "batch channels"]:
        """Each sequence's first row, that of the class token."""


@dataclass(frozen=True, eq=False)
class Padded:
    """The layout of an ordinary batch: every sequence as long as the longest.

    ``keep`` is true at real tokens; None when there are no pads. Its shapes depend on no value, so
    it can be exported.
    """

    keep: Bool[Tensor, "batch tokens"] | None = None

    @cached_property
    def visible(self) -> Bool[Tensor, "batch 1 1 tokens"] | None:
        """Which keys may be seen."""
        return None if self.keep is None else self.keep[:, None, None, :]

    def to_padded(self, rows: Tensor) -> Tensor:
        """Nothing to do."""
        return rows

    def to_rows(self, padded: Tensor) -> Tensor:
        """Nothing to do."""
        return padded

    def first(self, rows: Tensor) -> Float[Tensor, "batch channels"]:
        """The first token of each sequence."""
        return rows[:, 0]


@dataclass(frozen=True, eq=False)
class Packed:
    """The layout of real tokens alone, sequence after sequence; ``lengths`` are their tokens."""

    lengths: Int[Tensor, " batch"]

    def __post_init__(self) -> None:
        if self.lengths.numel() and int(self.lengths.min()) < 1:
            raise UsageError("every sequence needs at least one real token")

    @cached_property
    def longest(self) -> int:
        """Tokens of the longest sequence."""
        return int(self.lengths.max()) if self.lengths.numel() else 0

    @cached_property
    def even(self) -> bool:
        """Whether all sequences are of one length, so that rows are a batch already."""
        return bool((self.lengths == self.longest).all())

    @cached_property
    def starts(self) -> Int[Tensor, " batch"]:
        """The row at which each sequence begins."""
        return self.lengths.cumsum(0) - self.lengths

    @cached_property
    def keep(self) -> Bool[Tensor, "batch tokens"]:
        """True at the real tokens of the padded batch."""
        return torch.arange(self.longest, device=self.lengths.device) < self.lengths[:, None]

    @cached_property
    def visible(self) -> Bool[Tensor, "batch 1 1 tokens"] | None:
        """Which keys may be seen."""
        return None if self.even else self.keep[:, None, None, :]

    @cached_property
    def _source(self) -> Int[Tensor, " batch_tokens"]:
        """The row that fills each padded position; pads repeat their sequence's last row."""
        places = torch.arange(self.longest, device=self.lengths.device)
        return (self.starts[:, None] + places.minimum(self.lengths[:, None] - 1)).flatten()

    @cached_property
    def _places(self) -> Int[Tensor, " rows"]:
        """The padded position of each row."""
        return self.keep.flatten().nonzero().squeeze(1)

    @cached_property
    def owner(self) -> Int[Tensor, " rows"]:
        """The sequence that each row belongs to."""
        numbers = torch.arange(len(self.lengths), device=self.lengths.device)
        return numbers.repeat_interleave(self.lengths)

    def to_padded(self, rows: Tensor) -> Tensor:
        """The rows as a padded batch; pads hold finite values that must be masked."""
        shape = (len(self.lengths), self.longest, rows.shape[-1])
        return rows.view(shape) if self.even else rows[self._source].view(shape)

    def to_rows(self, padded: Tensor) -> Tensor:
        """The real tokens of a batch, end to end."""
        flat = padded.reshape(-1, padded.shape[-1])
        return flat if self.even else flat[self._places]

    def first(self, rows: Tensor) -> Float[Tensor, "batch channels"]:
        """Each sequence's first row."""
        return rows[self.starts]

    def choose(self, chosen: Bool[Tensor, " rows"]) -> Packed:
        """The layout of the chosen rows; every sequence must keep at least one."""
        counts = torch.zeros_like(self.lengths).index_add_(0, self.owner, chosen.to(torch.long))
        return Packed(counts)

    def stay(
        self, rows: Float[Tensor, "rows channels"], staying: Bool[Tensor, " batch"]
    ) -> tuple[Float[Tensor, "fewer_rows channels"], Packed]:
        """The rows and the layout of the sequences that go on."""
        return rows[staying[self.owner]], Packed(self.lengths[staying])


def mean_after_first(rows: Tensor, layout: Layout) -> Float[Tensor, "batch channels"]:
    """Each sequence's mean over all its real rows but the first, that of the class token.

    Every sequence needs two rows.
    """
    padded = layout.to_padded(rows)[:, 1:]
    if layout.visible is None:
        return padded.mean(1)
    real = layout.visible[:, 0, 0, 1:, None]
    return (padded * real).sum(1) / real.sum(1)


def mean_of_all(rows: Tensor, layout: Layout) -> Float[Tensor, "batch channels"]:
    """Each sequence's mean over all its real rows."""
    padded = layout.to_padded(rows)
    if layout.visible is None:
        return padded.mean(1)
    real = layout.visible[:, 0, 0, :, None].to(padded.dtype)
    return (padded * real).sum(1) / real.sum(1)


def pack(
    padded: Float[Tensor, "batch tokens channels"], keep: Bool[Tensor, "batch tokens"] | None
) -> tuple[Float[Tensor, "rows channels"], Packed]:
    """The real tokens of a padded batch and their layout; pads may be anywhere.

    A sequence's first row is its first real token. Raises ``UsageError`` for a sequence without a
    real token.
    """
    batch, tokens, channels = padded.shape
    if keep is None:
        lengths = torch.full((batch,), tokens, device=padded.device)
        return padded.reshape(-1, channels), Packed(lengths)
    return padded[keep], Packed(keep.sum(1))


def worth_packing(keep: Bool[Tensor, "batch tokens"] | None) -> bool:
    """Whether a batch has so many pads that it is faster packed.

    Not while it is traced, as values decide, nor with a sequence that has no real token.
    """
    if keep is None or is_traced():
        return False
    real: list[int] = keep.sum(1).tolist()  # one wait for a device
    return min(real, default=0) > 0 and sum(real) <= (1 - LEAST_PADS) * keep.numel()


def spread(
    rows: Float[Tensor, "rows channels"], keep: Bool[Tensor, "batch tokens"]
) -> Float[Tensor, "batch tokens channels"]:
    """Undo ``pack``; pads are zeros."""
    padded = rows.new_zeros(*keep.shape, rows.shape[-1])
    padded[keep] = rows
    return padded
