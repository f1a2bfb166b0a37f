"""Causal feature sums by the kernels of flash-linear-attention."""

from __future__ import annotations

import importlib
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from sparing.core.errors import Unsupported
from sparing.core.execution.path import LARGEST_HEAD, Call, PathFailed
from sparing.mechanisms.shared.sums.feature_sums import all_sums


def fla_limits(call: Call, features: int) -> str:
    """Why its kernels cannot serve a call of heads with so many features; empty if they can."""
    if features > LARGEST_HEAD:
        return f"it is used for up to {LARGEST_HEAD} features, not {features}"
    if call.dtype == torch.float32 and torch.get_float32_matmul_precision() == "highest":
        return "its kernels round float32 to TF32: see torch.set_float32_matmul_precision"
    if call.traced:
        return "its kernels would break the graph, and a compiler fuses the plain form"
    return ""


def past_by_fla(
    shares: Float[Tensor, "batch heads queries features"],
    keys: Float[Tensor, "batch heads keys features"],
    v: Float[Tensor, "batch heads keys dim"],
) -> Float[Tensor, "batch heads queries dim"]:
    """``feature_sums.over_past``, by chunks in one kernel; it can be differentiated once.

    Raises ``PathFailed`` if a kernel cannot be compiled or started.
    """
    mixed: Tensor = _past(shares, keys, v)
    return mixed


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _past(shares: Tensor, keys: Tensor, v: Tensor) -> Tensor:
    early = keys.shape[2] - shares.shape[2]
    state = None
    if early:
        state = all_sums(keys[:, :, :early], v[:, :, :early])
        keys, v = keys[:, :, early:], v[:, :, early:]
    # The kernels want (batch, tokens, heads, features). Heads count as samples unless the tensors
    # are stored like that already: so nothing is copied.
    tokens_first = v.transpose(1, 2).is_contiguous()
    once: tuple[Tensor, Tensor, Tensor] = _Once.apply(shares, keys, v)  # type: ignore[no-untyped-call]
    rows, new, values = (_laid_out(part, tokens_first) for part in once)
    if state is not None and not tokens_first:
        state = state.flatten(0, 1)[:, None]
    mixed = _chunked(rows, new, values, None if state is None else state.float())
    return mixed.transpose(1, 2) if tokens_first else mixed.view(*shares.shape[:3], -1)


def _laid_out(tensor: Tensor, tokens_first: bool) -> Tensor:
    return tensor.transpose(1, 2) if tokens_first else tensor.flatten(0, 1)[:, :, None]


def _chunked(q: Tensor, k: Tensor, v: Tensor, state: Tensor | None) -> Tensor:
    try:
        kernels = importlib.import_module("fla.ops.simple_gla")
        mixed: Tensor = kernels.chunk_simple_gla(q, k, v, scale=1.0, initial_state=state)[0]
    except torch.OutOfMemoryError:
        raise
    except Exception as cause:
        raise PathFailed("flash-linear-attention") from cause
    return mixed


class _Once(torch.autograd.Function):
    """Three tensors as they are; their gradients cannot be differentiated.

    The kernels' gradients are constants to autograd: second derivatives would be wrong in silence.
    """

    @staticmethod
    def forward(*tensors: Tensor) -> tuple[Tensor, ...]:
        """The same tensors."""
        return tuple(tensor.view_as(tensor) for tensor in tensors)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
        """Nothing is needed."""

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, ...]:
        """The slopes, unless they are to be differentiated."""
        del ctx
        if torch.is_grad_enabled():
            raise Unsupported(
                "the path 'fla' has no second derivatives (create_graph=True); run the model "
                "inside sparing.on_path('accelerator')"
            )
        return slopes
