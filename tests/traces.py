"""Modules that are equal in all that decides their export are traced once in a test session.

A trace takes seconds, and many tests export the same tiny models of fixed weights. The file is
written and compared with its module each time, as without this.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

PLAIN = (bool, int, float, str, tuple, type(None))
_made: dict[str, bytes] = {}


def install() -> None:
    """Remember what ``sparing.export.onnx`` traces, for this process."""
    module = importlib.import_module("sparing.export.onnx")
    module._traced = remembered(module._traced)


def remembered(trace: Callable[[nn.Module, dict[str, Tensor]], Any]) -> Callable[..., Any]:
    """The function with a memory; a failure is not remembered."""

    def traced(segment: nn.Module, example: dict[str, Tensor]) -> Any:
        key = key_of(segment, example)
        if key not in _made:
            model = trace(segment, example)
            _made[key] = model.SerializeToString()
            return model
        return importlib.import_module("onnx").load_from_string(_made[key])

    return traced


def key_of(segment: nn.Module, example: Mapping[str, Tensor]) -> str:
    """What is the same for two modules only where their export is: classes, settings, weights."""
    digest = hashlib.blake2b(digest_size=16)
    for name, part in segment.named_modules():
        kind = type(part)
        settings = {key: _shown(value) for key, value in vars(part).items() if key[0] != "_"}
        digest.update(f"{name} {kind.__module__}.{kind.__qualname__} {settings}".encode())
    tensors = [*segment.named_parameters(), *segment.named_buffers(), *example.items()]
    for name, value in tensors:
        digest.update(f"{name} {tuple(value.shape)} {value.dtype}".encode())
        digest.update(value.detach().flatten().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _shown(value: Any) -> str:
    """A setting as text, the same in all processes."""
    if isinstance(value, PLAIN) or dataclasses.is_dataclass(value):
        return repr(value)
    if hasattr(value, "to_json_string"):
        return str(value.to_json_string())
    return str(getattr(value, "__qualname__", type(value).__qualname__))
