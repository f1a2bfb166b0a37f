"""Dropping tokens of a padded batch with shapes that depend on shapes alone, for export."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

FINEST = 10_000
BEHIND = 1 << 30


@dataclass(frozen=True)
class Capacity:
    """The number of tokens in a share, rounded up, never below ``least``."""

    parts: int
    of: int
    least: int = 1

    @classmethod
    def from_share(cls, share: float, least: int = 1) -> Capacity:
        """The nearest fraction with a denominator of at most 10,000."""
        fraction = Fraction(share).limit_denominator(FINEST)
        return cls(fraction.numerator, fraction.denominator, least)

    def of_count(self, count: int) -> int:
        """The capacity of ``count`` tokens (which may be a traced size)."""
        share = (count * self.parts + self.of - 1) // self.of
        # a share of one token or more is at least 1, and a traced size has no simple maximum
        return share if self.least == 1 else min(count, max(self.least, share))

    def of_lengths(self, lengths: Int[Tensor, " batch"]) -> Int[Tensor, " batch"]:
        """The capacity of each sequence."""
        share = (lengths * self.parts + self.of - 1) // self.of
        return share.clamp(min=self.least).minimum(lengths)

    def keep_after(self, keep: Bool[Tensor, "batch tokens"]) -> Bool[Tensor, "batch fewer_tokens"]:
        """The mask after tokens were dropped: each sequence's kept tokens come first."""
        places = torch.arange(self.of_count(keep.shape[1]), device=keep.device)
        return places < self.of_lengths(keep.sum(1))[:, None]


def drop_padded(
    rows: Float[Tensor, "batch tokens width"],
    received: Float[Tensor, "batch tokens"],
    keep: Bool[Tensor, "batch tokens"] | None,
    capacity: Capacity,
) -> Float[Tensor, "batch fewer_tokens width"]:
    """Each sequence's most attended tokens, in order, then pads; the first always stays.

    The same tokens as ``kept_tokens`` takes from packed rows, except for ties.
    """
    batch, tokens, width = rows.shape
    most = capacity.of_count(tokens)
    first = torch.arange(tokens, device=rows.device) == 0
    order = received if keep is None else received.where(keep, -1.0)
    order = order.where(~first, torch.inf)
    chosen = order.topk(most, dim=1).indices
    if keep is None:
        places = chosen.sort(dim=1).values
    else:
        # tokens beyond a sequence's own count go behind its kept tokens, as pads
        extra = torch.arange(most, device=rows.device) >= capacity.of_lengths(keep.sum(1))[:, None]
        behind = chosen.where(~extra, chosen + BEHIND).sort(dim=1).values
        places = behind.where(behind < BEHIND, behind - BEHIND)
    return rows.gather(1, places[:, :, None].expand(batch, most, width))
