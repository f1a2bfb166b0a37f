"""Explicit gradients of feature attention: fewer passes over memory than PyTorch's derived ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from sparing.core.tracing import is_traced
from sparing.mechanisms.shared.arithmetic import dots


def by_hand(*tensors: Tensor | None) -> bool:
    """Whether gradients are recorded and the explicit ones can be used and save time.

    They save time where memory is the bottleneck, on CPU and CUDA devices. They are not used under
    autocast, which would mix types in them, nor in tracing, where the compiler does better.
    """
    present = [tensor for tensor in tensors if tensor is not None]
    device = present[0].device.type
    if is_traced() or device not in ("cpu", "cuda"):
        return False
    recorded = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in present)
    return recorded and not torch.is_autocast_enabled(device)


def recorded_attend(
    queries: Float[Tensor, "batch heads queries features"],
    keys: Float[Tensor, "batch heads keys features"],
    v: Float[Tensor, "batch heads keys dim"],
    weights: Float[Tensor, "batch _ keys"] | None,
) -> Float[Tensor, "batch heads queries dim"]:
    """``_kernel.attend`` without causality; it can be differentiated once.

    Let S = sum_j w_j k_j v_j^T, z = sum_j w_j k_j, t_i = q_i . z and out_i = q_i^T S / t_i. With
    g_i the gradient of out_i, let g'_i = g_i / t_i and s_i = -g'_i . out_i. The gradients are S
    g'_i + s_i z of q_i, G = sum_i q_i g'_i^T of S, and y = sum_i s_i q_i of z. From these follow
    w_j (G v_j + y) of k_j, w_j G^T k_j of v_j, and k_j . (G v_j + y) of w_j.
    """
    mixed: Tensor = _Attend.apply(queries, keys, v, weights)[0]  # type: ignore[no-untyped-call]
    return mixed


def mapped(
    values: Callable[[Tensor], Tensor],
    slopes: Callable[[Tensor], Tensor],
    x: Float[Tensor, "*shape"],
) -> Float[Tensor, "*shape"]:
    """``values(x)``, element by element; ``slopes`` computes the slope from the value alone.

    ``slopes`` returns a new tensor. The gradient is explicit where ``by_hand`` allows it.
    """
    if not by_hand(x):
        return values(x)
    result: Tensor = _Mapped.apply(x, values, slopes)  # type: ignore[no-untyped-call]
    return result


class _Mapped(torch.autograd.Function):
    """See ``mapped``."""

    @staticmethod
    def forward(x: Tensor, values: Callable[[Tensor], Tensor], _: object) -> Tensor:
        """The values."""
        return values(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Keep the values and the slope function."""
        ctx.slopes = inputs[2]
        ctx.save_for_backward(output)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slopes: Tensor) -> tuple[Tensor, None, None]:
        """The slopes times the incoming gradients."""
        return ctx.slopes(ctx.saved_tensors[0]).mul_(slopes), None, None


class _Attend(torch.autograd.Function):
    """See ``recorded_attend``; it also returns S, z and t, which the gradient needs."""

    @staticmethod
    def forward(
        queries: Tensor, keys: Tensor, v: Tensor, weights: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The result, S, z and t."""
        if weights is None:
            sums, features = keys.transpose(-1, -2) @ v, keys.sum(-2)
        else:
            sums = keys.transpose(-1, -2) @ (v * weights[..., None])
            features = dots(keys.transpose(-1, -2), weights)
        totals = dots(queries, features).clamp_min_(torch.finfo(queries.dtype).tiny)
        return (queries @ sums).div_(totals[..., None]), sums, features, totals

    @staticmethod
    def setup_context(
        ctx: Any, inputs: tuple[Tensor | None, ...], output: tuple[Tensor, ...]
    ) -> None:
        """Keep all of it."""
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(*inputs, *output)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slopes: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of queries, keys, v and weights."""
        queries, keys, v, weights, mixed, sums, features, totals = ctx.saved_tensors
        slopes = slopes / totals[..., None]
        of_totals = -(slopes * mixed).sum(-1)
        of_totals = of_totals.where(totals > torch.finfo(totals.dtype).tiny, 0)
        of_queries = slopes @ sums.transpose(-1, -2)
        of_queries.addcmul_(of_totals[..., None], features[..., None, :])
        of_sums = queries.transpose(-1, -2) @ slopes
        of_keys = (v @ of_sums.transpose(-1, -2)).add_(of_totals[..., None, :] @ queries)
        of_values = keys @ of_sums
        of_weights = None
        if weights is not None:
            if ctx.needs_input_grad[3]:
                of_weights = (keys * of_keys).sum(-1).sum_to_size(weights.shape)
            of_keys.mul_(weights[..., None])
            of_values.mul_(weights[..., None])
        return of_queries, of_keys, of_values, of_weights
