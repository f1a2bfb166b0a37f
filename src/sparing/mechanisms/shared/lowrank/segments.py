"""Means of equal segments of each row, without a look at any value."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from sparing.mechanisms.shared.precise import precise_product


def means_of_segments(
    streams: Sequence[Float[Tensor, "batch heads tokens dim"]],
    segments: int,
    keep: Bool[Tensor, "batch tokens"] | None,
) -> tuple[list[Float[Tensor, "batch heads means dim"]], Bool[Tensor, "batch 1 1 means"] | None]:
    """The mean of each segment, at least in float32; and which segments hold a token (None: all).

    A row's own length, inner pads included, is cut into ``segments`` parts. Their sizes differ by
    one at most, the larger first. A shorter row has as many parts as tokens. The streams are one
    sequence; they are not copied to float32.
    """
    segments = min(segments, streams[0].shape[2])
    if keep is None:
        return [_of_whole_rows(stream, segments) for stream in streams], None
    inside = _inside(segments, keep)
    counts = inside.sum(2, keepdim=True)
    member, divisor = inside.to(streams[0].dtype), counts.clamp(min=1)
    means = []
    for stream in streams:
        batch, heads, tokens, dim = stream.shape
        rows = stream.transpose(1, 2).reshape(batch, tokens, heads * dim)
        mean = precise_product(member, rows) / divisor
        means.append(mean.view(batch, segments, heads, dim).transpose(1, 2))
    return means, (counts > 0).view(keep.shape[0], 1, 1, segments)


def _of_whole_rows(
    stream: Float[Tensor, "batch heads tokens dim"], segments: int
) -> Float[Tensor, "batch heads {segments} dim"]:
    """Two views, of the larger and of the smaller segments."""
    size, larger = divmod(stream.shape[2], segments)
    border = larger * (size + 1)
    parts = (stream[:, :, :border], larger), (stream[:, :, border:], segments - larger)
    dtype = torch.promote_types(stream.dtype, torch.float32)
    means = [
        part.view(*part.shape[:2], count, -1, part.shape[3]).mean(3, dtype=dtype)
        for part, count in parts
        if count
    ]
    return torch.cat(means, 2) if len(means) > 1 else means[0]


def _inside(
    segments: int, keep: Bool[Tensor, "batch tokens"]
) -> Bool[Tensor, "batch {segments} tokens"]:
    """Which real tokens are in a segment of their row."""
    tokens = keep.shape[1]
    first = keep.int().argmax(1, keepdim=True)
    length = tokens - keep.flip(1).int().argmax(1, keepdim=True) - first
    number = torch.arange(segments + 1, device=keep.device)
    starts = first + number * (length // segments) + torch.minimum(number, length % segments)
    position = torch.arange(tokens, device=keep.device)
    inside = (position >= starts[:, :-1, None]) & (position < starts[:, 1:, None])
    return inside & keep.unsqueeze(1)
