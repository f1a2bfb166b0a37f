"""Products of half precision with results in float32, as tensor cores form them."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from sparing.core.tracing import is_traced

HALVES = (torch.float16, torch.bfloat16)


def wide_product(
    a: Float[Tensor, "*#batch rows inner"], b: Float[Tensor, "*#batch inner columns"]
) -> Float[Tensor, "... rows columns"]:
    """``a @ b``, of half precision in float32: no sum is rounded on its way.

    Only CUDA has such a product; elsewhere the factors are widened. "meta" is counted as CUDA.
    """
    if a.dtype not in HALVES:
        return a @ b
    if a.device.type not in ("cuda", "meta") or torch._C._are_functorch_transforms_active():
        return a.float() @ b.float()
    batch: torch.Size = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])  # type: ignore[no-untyped-call]
    if b.ndim == 2:
        left, right = a.reshape(1, -1, a.shape[-1]), b[None]
    else:
        left, right = (part.expand(*batch, -1, -1).flatten(0, -3) for part in (a, b))
    recorded = torch.is_grad_enabled() and (a.requires_grad or b.requires_grad)
    product: Tensor = (
        _Wide.apply(left, right) if recorded else _wide(left, right)  # type: ignore[no-untyped-call]
    )
    return product.view(*batch, a.shape[-2], b.shape[-1])


def _wide(a: Tensor, b: Tensor) -> Tensor:
    product: Any = torch.bmm  # its annotations lack out_dtype
    wide: Tensor = product(a, b, out_dtype=torch.float32)
    return wide


class _Wide(torch.autograd.Function):
    """``_wide``, which has no gradients of its own."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        """The product in float32."""
        ctx.save_for_backward(a, b)
        return _wide(a, b)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """Gradients in the factors' type, as those of a product of halves; none for constants."""
        a, b = ctx.saved_tensors
        gradient = gradients[0].to(a.dtype)
        of_a, of_b = ctx.needs_input_grad
        return gradient @ b.mT if of_a else None, a.mT @ gradient if of_b else None


def wide_type(dtype: torch.dtype) -> torch.dtype:
    """float32 for half precision, otherwise the type itself."""
    return torch.float32 if dtype in HALVES else dtype


def recorded(*tensors: Tensor) -> bool:
    """Whether gradients are recorded or a graph is: then nothing may be overwritten."""
    return is_traced() or (
        torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    )


def exp_in(x: Float[Tensor, "*shape"], dtype: torch.dtype) -> Float[Tensor, "*shape"]:
    """exp(x) in another type, in one operation where no gradients are recorded."""
    if x.dtype == dtype or recorded(x):
        return x.exp().to(dtype)
    exponential: Tensor = torch.exp(x, out=torch.empty_like(x, dtype=dtype))
    return exponential


def in_parts(
    x: Float[Tensor, "*shape"], dtype: torch.dtype, count: int = 3
) -> list[Float[Tensor, "*shape"]]:
    """Numbers that add up to x, each in ``dtype``: ``count`` of half precision, or one.

    A product of such parts next to each other with ones is x: three have float32's precision.
    """
    if dtype not in HALVES:
        return [x.to(dtype)]
    parts = [x.to(dtype)]
    while len(parts) < count:
        x = x - parts[-1]
        parts.append(x.to(dtype))
    return parts


def split_rows(
    rows: Float[Tensor, "*heads count dim"], *streams: Float[Tensor, "..."]
) -> list[Float[Tensor, "..."]]:
    """``x @ rows^T`` of each stream, in float32 at least, for rows of more precision than x.

    In half precision rows are a sum of two parts; x is exact.
    """
    dtype = streams[0].dtype
    if dtype not in HALVES or rows.dtype == dtype:
        return [wide_product(x, rows.to(dtype).mT) for x in streams]
    both = torch.cat(in_parts(rows, dtype, 2), -1)
    return [wide_product(torch.cat([x, x], -1), both.mT) for x in streams]
