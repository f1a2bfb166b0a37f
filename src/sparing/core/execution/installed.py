"""Which kernels of others can be used here; nothing of them is imported to say it."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util

FLA = ((0, 5), (0, 7))
"""Versions of fla-core, from and below, with the kernels that are called."""


@functools.cache
def fla_missing() -> str:
    """Why flash-linear-attention cannot be used; empty if it can."""
    install = "pip install 'sparing[gpu]'"
    try:
        version = importlib.metadata.version("fla-core")
    except importlib.metadata.PackageNotFoundError:
        return f"fla-core is not installed: {install}"
    if not _triton():
        return "Triton is not installed; it comes with a PyTorch for CUDA"
    try:
        parts = tuple(int(part) for part in version.split(".")[:2])
    except ValueError:
        parts = (0, 0)
    first, after = (".".join(map(str, bound)) for bound in FLA)
    if not FLA[0] <= parts < FLA[1]:
        return f"fla-core {version} is not one of those known, {first} to below {after}: {install}"
    if importlib.util.find_spec("einops") is None:
        return f"einops is not installed, which fla-core needs: {install}"
    return ""


@functools.cache
def flex_missing(device: str) -> str:
    """Why FlexAttention cannot be used on a type of device; empty if it can."""
    if importlib.util.find_spec("torch.nn.attention.flex_attention") is None:
        return "this PyTorch has no FlexAttention"
    if device == "cuda" and not _triton():
        return "Triton is not installed; it comes with a PyTorch for CUDA"
    return ""


def _triton() -> bool:
    return importlib.util.find_spec("triton") is not None
