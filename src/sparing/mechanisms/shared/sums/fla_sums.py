"""Causal feature sums by the kernels of flash-linear-attention."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from sparing.core.errors import Unsupported
from sparing.core.execution.path import Call, PathFailed
from sparing.mechanisms.shared.sums.feature_sums import all_sums
from sparing.mechanisms.shared.sums.past import Weights, guarded, quotient, visible

MOST_FEATURES = 512
"""Features of a head up to which the kernels are used; they take them in blocks."""

_FARTHEST = -104.0
"""The logarithm of a factor that is zero in float32: more would only take digits from others."""


def fla_limits(call: Call, features: int) -> str:
    """Why its kernels cannot serve a call of heads with so many features; empty if they can."""
    if features > MOST_FEATURES:
        return f"it is used for up to {MOST_FEATURES} features, not {features}"
    if call.dtype == torch.float32 and torch.get_float32_matmul_precision() == "highest":
        return "its kernels round float32 to TF32: see torch.set_float32_matmul_precision"
    if call.traced:
        return "its kernels would break the graph, and a compiler fuses the plain form"
    return ""


def mix_limits(call: Call, features: int) -> str:
    """``fla_limits`` of ``mix_past_by_fla``; its sums need the range of float32 or bfloat16."""
    if call.dtype == torch.float16:
        return "float16 has too little range for its sums"
    return fla_limits(call, features)


def past_by_fla(
    shares: Float[Tensor, "batch heads queries features"],
    keys: Float[Tensor, "batch heads keys features"],
    v: Float[Tensor, "batch heads keys dim"],
) -> Float[Tensor, "batch heads queries dim"]:
    """``feature_sums.over_past``, by chunks in one kernel; it can be differentiated once.

    Raises ``PathFailed`` if a kernel cannot be compiled or started.
    """
    early = keys.shape[2] - shares.shape[2]
    state = all_sums(keys[:, :, :early], v[:, :, :early]) if early else None
    mixed: Tensor = _past(shares, keys[:, :, early:], v[:, :, early:], state)
    return mixed


def mix_past_by_fla(
    queries: Float[Tensor, "batch heads queries features"],
    keys: Float[Tensor, "batch heads keys features"],
    v: Float[Tensor, "batch heads keys dim"],
    weights: Weights,
) -> Float[Tensor, "batch heads queries dim"]:
    """``past.mix_past``, by chunks in one kernel; it can be differentiated once.

    Each key's weight is taken over the largest one so far. Where a larger one comes, the kernel's
    gate scales the sums down. More columns of v, ones, sum the denominators.
    Raises ``PathFailed`` if a kernel cannot be compiled or started.
    """
    dtype, dim, early = v.dtype, v.shape[3], keys.shape[2] - queries.shape[2]
    v = F.pad(v.to(keys.dtype), (0, 8 - dim % 8), value=1)
    if odd := keys.shape[3] % 8:  # the kernels read whole words
        queries, keys = (F.pad(part, (0, 8 - odd)) for part in (queries, keys))
    gates = None
    if weights.logs is not None:
        gates = _Gates.of(weights.logs, early)
        v = v * gates.weights[..., None].to(v.dtype)
    elif weights.keep is not None:
        v = v * weights.keep[:, None, :, None]
    state = all_sums(keys[:, :, :early], v[:, :, :early]) if early else None
    steps = None if gates is None else gates.steps
    mixed: Tensor = _past(queries, keys[:, :, early:], v[:, :, early:], state, steps)
    totals = mixed[..., dim : dim + 1].float()
    if weights.floor:
        reference = None if gates is None else gates.reference
        seen = visible(weights, reference, early, queries, totals.dtype)
        totals = guarded(totals, seen[..., None] * weights.floor)
    else:
        totals = guarded(totals, 0.0)
    return quotient(mixed[..., :dim], totals, dtype)


@dataclass(frozen=True)
class _Gates:
    """Weights of keys over the largest one so far, and how far each new largest scales sums down.

    ``weights`` are of all keys, those of ``early`` ones over the largest of these. ``reference`` is
    the logarithm of the largest weight up to each query, ``steps`` that of the factor.
    """

    weights: Float[Tensor, "batch _ keys"]
    steps: Float[Tensor, "batch _ queries"]
    reference: Float[Tensor, "batch _ queries"]

    @classmethod
    def of(cls, logs: Float[Tensor, "batch _ keys"], early: int) -> _Gates:
        """Those of keys with these logarithms; the first ``early`` have no query."""
        largest = logs.detach().cummax(-1).values
        before = largest[..., max(early, 1) - 1, None]
        over = torch.cat([before.expand(*before.shape[:-1], early), largest[..., early:]], -1)
        steps = torch.cat([before, largest[..., early:-1]], -1) - largest[..., early:]
        return cls((logs - over).exp(), steps.clamp(min=_FARTHEST).float(), largest[..., early:])


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _past(
    shares: Tensor, keys: Tensor, v: Tensor, state: Tensor | None, steps: Tensor | None = None
) -> Tensor:
    """The kernel's sums, from a state on; before a token they are scaled by exp(its step)."""
    # The kernels want (batch, tokens, heads, features). Heads count as samples unless the tensors
    # are stored like that already: so nothing is copied.
    tokens_first = v.transpose(1, 2).is_contiguous()
    once: tuple[Tensor, Tensor, Tensor] = _Once.apply(shares, keys, v)  # type: ignore[no-untyped-call]
    rows, new, values = (_laid_out(part, tokens_first) for part in once)
    if state is not None:
        state = (state if tokens_first else state.flatten(0, 1)[:, None]).float()
    if steps is not None:
        steps = _laid_out(steps.expand(*v.shape[:3])[..., None], tokens_first)[..., 0]
    mixed = _chunked(rows, new, values, steps, state)
    return mixed.transpose(1, 2) if tokens_first else mixed.view(*shares.shape[:3], -1)


def _laid_out(tensor: Tensor, tokens_first: bool) -> Tensor:
    return tensor.transpose(1, 2) if tokens_first else tensor.flatten(0, 1)[:, :, None]


def _chunked(q: Tensor, k: Tensor, v: Tensor, steps: Tensor | None, state: Tensor | None) -> Tensor:
    try:
        kernels = importlib.import_module("fla.ops.simple_gla")
        run = kernels.chunk_simple_gla
        mixed: Tensor = run(q, k, v, g=steps, scale=1.0, initial_state=state)[0]
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
