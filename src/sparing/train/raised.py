"""Attention in float32 within a step in bfloat16, where that is the faster of the two."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from sparing.core.mechanism import without_autocast


class RaisedAttention(TorchFunctionMode):
    """Computes bfloat16 attention on a CPU in float32 where gradients are recorded.

    The backward pass of the CPU's fused kernel is slow in bfloat16, most of all for short texts.
    The result is bfloat16 again.
    """

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Every function of torch passes here; only fused attention is changed."""
        given = kwargs or {}
        if func is F.scaled_dot_product_attention:
            return _attend(*args, **given)
        return func(*args, **given)


def _attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    *rest: Any,
    **options: Any,
) -> Tensor:
    """``scaled_dot_product_attention`` with its own argument names."""
    lowered = query.dtype is torch.bfloat16 and query.device.type == "cpu"
    if not lowered or not torch.is_grad_enabled():
        return F.scaled_dot_product_attention(query, key, value, attn_mask, *rest, **options)
    q, k, v = query.float(), key.float(), value.float()
    if attn_mask is not None and attn_mask.is_floating_point():
        attn_mask = attn_mask.float()
    with without_autocast("cpu"):
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask, *rest, **options)
    return mixed.to(query.dtype)


def raised_attention(*, bfloat16: bool, device: torch.device) -> AbstractContextManager[object]:
    """``RaisedAttention`` for a step in bfloat16 on a CPU; elsewhere nothing."""
    return RaisedAttention() if bfloat16 and device.type == "cpu" else nullcontext()
