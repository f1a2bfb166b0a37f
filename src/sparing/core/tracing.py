"""Whether a call is recorded as a graph: then nothing may depend on the values of tensors."""

from __future__ import annotations

import torch


def is_traced() -> bool:
    """Whether this call becomes a graph, or runs under ``torch.vmap`` and its like.

    True for ``torch.compile``, ``torch.export``, ``torch.jit.trace``, both ONNX exporters, and the
    transforms of ``torch.func``. A branch on values (is anything padded?) would be recorded as it
    happened to go, and a loop over tokens with its present length; vmap refuses both.
    """
    return (
        torch.compiler.is_compiling()
        or torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
        or torch._C._are_functorch_transforms_active()
    )
