"""Whether a call is recorded as a graph: then nothing may depend on the values of tensors."""

from __future__ import annotations

import torch


def is_traced() -> bool:
    """Whether this call becomes a graph, or runs under ``torch.vmap`` and similar transforms.

    True for ``torch.compile``, ``torch.export``, ``torch.jit.trace``, both ONNX exporters, and the
    transforms of ``torch.func``. A branch on values (is anything padded?) would be recorded as
    taken in this call, and a loop over tokens with its present length; vmap refuses both.
    """
    return (
        torch.compiler.is_compiling()
        or torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
        or torch._C._are_functorch_transforms_active()
    )


def is_exported() -> bool:
    """Whether this call is recorded once, by ``torch.export``, a trace or an exporter to ONNX.

    ``torch.compile`` is excluded: it falls back to Python where a value decides.
    """
    return (
        torch.compiler.is_exporting() or torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
    )
