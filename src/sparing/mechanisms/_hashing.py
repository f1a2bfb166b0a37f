"""Shared by mechanisms that hash: random directions for each head, and work head by head."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from sparing.core.tracing import is_traced
from sparing.mechanisms._kernel import rows_at_once


def coarse_normal(shape: tuple[int, ...], seed: int) -> Float[Tensor, "*shape"]:
    """Normal numbers rounded to eight bits of precision: casts to half precision keep them.

    A hash near a border would fall on its other side if a cast moved the border.
    """
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(shape, generator=generator, device="cpu").bfloat16()
    return torch.empty(shape).copy_(drawn)


def by_heads(
    mix_rows: Callable[..., Tensor],
    streams: tuple[Float[Tensor, "batch heads _ dim"], ...],
    keep: Shaped[Tensor, "batch tokens"] | None,
    parameters: Shaped[Tensor, "heads ..."],
) -> Float[Tensor, "batch heads queries dim"]:
    """Run ``mix_rows(*streams, keep, parameters)`` for a few heads at a time.

    Each call gets its heads' part of ``parameters``. All heads run at once, as in ``in_cache``,
    where gradients are recorded, on other devices, and in export. The result has the first stream's
    type and memory layout.
    """
    q = streams[0]
    recorded = torch.is_grad_enabled() and any(stream.requires_grad for stream in streams)
    if is_traced() or recorded or q.device.type != "cpu":
        return mix_rows(*streams, keep, parameters).to(q.dtype)
    mixed = torch.empty_like(q)
    step = rows_at_once(max(stream.shape[2] for stream in streams), q.shape[3])
    for sample in range(q.shape[0]):
        for head in range(0, q.shape[1], step):
            part = slice(sample, sample + 1), slice(head, head + step)
            rows = (stream[part] for stream in streams)
            mixed[part] = mix_rows(
                *rows, None if keep is None else keep[part[0]], parameters[part[1]]
            )
    return mixed
