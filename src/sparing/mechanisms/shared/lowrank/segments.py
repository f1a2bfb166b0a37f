"""Means of equal segments of each row, without a look at any value."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sparing.mechanisms.shared.products import recorded, wide_product, wide_type


def means_of_segments(
    streams: Sequence[Float[Tensor, "batch heads tokens dim"]],
    segments: int,
    keep: Bool[Tensor, "batch tokens"] | None,
) -> tuple[list[Float[Tensor, "batch heads means dim"]], Bool[Tensor, "batch 1 1 means"] | None]:
    """The mean of each segment, at least in float32; and which segments hold a token (None: all).

    A row's own length, inner pads included, is cut into ``segments`` parts. Their sizes differ by
    one at most, the larger first. A shorter row has as many parts as tokens. The streams are one
    sequence; on CUDA they are not copied to float32.
    """
    segments = min(segments, streams[0].shape[2])
    if keep is None:
        return [_of_whole_rows(stream, segments) for stream in streams], None
    inside = _inside(segments, keep)
    counts = inside.sum(2)
    member, divisor = inside.to(streams[0].dtype), counts.clamp(min=1)[:, None, :, None]
    means = []
    for stream in streams:
        batch, heads, tokens, dim = stream.shape
        rows = stream.transpose(1, 2).reshape(batch, tokens, heads * dim)
        sums = wide_product(member, rows).view(batch, segments, heads, dim)
        means.append(_divided(sums.transpose(1, 2), divisor))
    return means, (counts > 0)[:, None, None]


def _divided(
    sums: Float[Tensor, "batch heads means dim"], by: Int[Tensor, "batch 1 means 1"]
) -> Float[Tensor, "batch heads means dim"]:
    """The quotient, heads before means in memory where nothing is recorded: products need that."""
    if recorded(sums):
        return sums / by
    return torch.div(sums, by, out=sums.new_empty(sums.shape))


def _of_whole_rows(
    stream: Float[Tensor, "batch heads tokens dim"], segments: int
) -> Float[Tensor, "batch heads {segments} dim"]:
    """Two views, of the larger and of the smaller segments."""
    size, larger = divmod(stream.shape[2], segments)
    border = larger * (size + 1)
    parts = (stream[:, :, :border], larger), (stream[:, :, border:], segments - larger)
    dtype = wide_type(stream.dtype)
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
    number = torch.arange(max(segments, tokens) + 1, device=keep.device)
    first = keep.int().argmax(1, keepdim=True)
    length = (keep * number[1 : tokens + 1]).amax(1, keepdim=True) - first
    size, number_of_start = length // segments, number[: segments + 1]
    larger = torch.minimum(number_of_start, torch.sub(length, size, alpha=segments))
    starts = torch.addcmul(first + larger, size, number_of_start)
    begun = number[:tokens] >= starts[..., None]
    return (begun[:, :-1] > begun[:, 1:]) & keep.unsqueeze(1)
