"""Rows aligned at their first real token and cut to their own length: pads change nothing."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sparing.core.tracing import is_traced
from sparing.mechanisms.shared.arithmetic import wide


def first_token(keep: Bool[Tensor, "batch keys"]) -> Int[Tensor, " batch"] | None:
    """The position of each row's first real token; None where all rows start with one.

    In export the values are not known, so every row counts as one that may start late.
    """
    first = keep.int().argmax(1)
    if not is_traced() and not bool(first.any()):
        return None
    return first


def rolled(stream: Tensor, first: Int[Tensor, " batch"]) -> Tensor:
    """Each row rotated so that its first real token is at 0; its left pads go to the end.

    ``stream`` is (batch, heads, tokens, dim) or, for a keep mask, (batch, tokens).
    """
    dimension = 1 if stream.ndim == 2 else 2
    tokens = stream.shape[dimension]
    index = torch.arange(tokens, device=stream.device) + first.unsqueeze(1)
    index = index.where(index < tokens, index - tokens)  # ONNX has no remainder by a free size
    if stream.ndim == 4:
        index = index[:, None, :, None].expand_as(stream)
    return stream.gather(dimension, index)


def pooled(
    stream: Float[Tensor, "batch heads tokens dim"],
    keep: Bool[Tensor, "batch tokens"] | None,
    stride: int,
    kernel: Float[Tensor, "#heads stride dim"] | None,
) -> tuple[Float[Tensor, "batch heads groups dim"], Bool[Tensor, "#batch 1 1 groups"]]:
    """The mean of each ``stride`` tokens, or their sum under a kernel; and which groups hold any.

    At least in float32: a score sums products of its features, and would multiply their rounding.
    A group with fewer real tokens than ``stride`` is scaled up, so that a kernel of 1 / stride
    gives the mean there too.
    """
    tokens = stream.shape[2]
    if keep is None:
        keep = torch.ones(1, tokens, dtype=torch.bool, device=stream.device)
    if is_traced():
        # Export treats a size of one as a constant: there are always two groups.
        index = torch.arange(tokens // stride + 2, device=stream.device).unsqueeze(1) * stride
        index = index + torch.arange(stride, device=stream.device)
        inside = index < tokens
        index = index.clamp(max=tokens - 1)
        parts, real = stream[:, :, index].where(inside.unsqueeze(-1), 0), keep[:, index] & inside
    else:
        groups = -(-tokens // stride)
        if missing := groups * stride - tokens:
            stream, keep = F.pad(stream, (0, 0, 0, missing)), F.pad(keep, (0, missing))
        parts = stream.view(*stream.shape[:2], groups, stride, -1)
        real = keep.view(-1, groups, stride)
    parts, counts = wide(parts), real.sum(-1)
    scale = 1 / counts.clamp(min=1).to(parts.dtype)
    if kernel is not None:
        parts, scale = parts * kernel.to(parts.dtype).unsqueeze(1), scale * stride
    mixed = parts.sum(3) * scale[:, None, :, None]
    return mixed, (counts > 0)[:, None, None]


def segment_means(
    stream: Float[Tensor, "batch heads tokens dim"],
    segments: int,
    keep: Bool[Tensor, "batch tokens"] | None,
) -> tuple[Float[Tensor, "batch heads means dim"], Bool[Tensor, "batch 1 1 means"] | None]:
    """The mean of each segment, at least in float32; and which segments hold a token (None: all).

    A row's own length, inner pads included, is cut into ``segments`` parts. Their sizes differ by
    one at most, the larger first. A shorter row has as many parts as tokens.
    """
    tokens = stream.shape[2]
    if is_traced():
        real = torch.ones_like(stream[:, 0, :, 0], dtype=torch.bool) if keep is None else keep
        return _masked_means(stream, segments, real)
    if keep is None or bool(keep.all()):
        return _plain_means(stream, min(segments, tokens)), None
    return _masked_means(stream, min(segments, tokens), keep)


def _plain_means(
    stream: Float[Tensor, "batch heads tokens dim"], segments: int
) -> Float[Tensor, "batch heads {segments} dim"]:
    """Two views, of the larger and of the smaller segments: nothing is copied."""
    stream = wide(stream)
    size, larger = divmod(stream.shape[2], segments)
    border = larger * (size + 1)
    means = [
        part.view(*stream.shape[:2], count, -1, stream.shape[3]).mean(3)
        for part, count in (
            (stream[:, :, :border], larger),
            (stream[:, :, border:], segments - larger),
        )
        if count
    ]
    return torch.cat(means, 2) if len(means) > 1 else means[0]


def _masked_means(
    stream: Float[Tensor, "batch heads tokens dim"],
    segments: int,
    keep: Bool[Tensor, "batch tokens"],
) -> tuple[Float[Tensor, "batch heads means dim"], Bool[Tensor, "batch 1 1 means"]]:
    """One product with a (segments, tokens) matrix per row, each row with its own length."""
    batch, heads, tokens, dim = stream.shape
    first = keep.int().argmax(1, keepdim=True)
    length = tokens - keep.flip(1).int().argmax(1, keepdim=True) - first
    size, larger = length // segments, length % segments
    border = larger * (size + 1)
    position = torch.arange(tokens, device=keep.device) - first
    behind = larger + (position - border).div(size.clamp(min=1), rounding_mode="floor")
    segment = (position.div(size + 1, rounding_mode="floor")).where(position < border, behind)
    member = segment.unsqueeze(1) == torch.arange(segments, device=keep.device).unsqueeze(1)
    member = member & keep.unsqueeze(1)
    counts = member.sum(2, keepdim=True)
    values = wide(stream).transpose(1, 2).reshape(batch, tokens, heads * dim)
    means = (member.to(values.dtype) / counts.clamp(min=1)) @ values
    filled = (counts > 0).view(batch, 1, 1, segments)
    return means.view(batch, segments, heads, dim).transpose(1, 2), filled
