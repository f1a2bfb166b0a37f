"""The device of a study: the accelerator where there is one, and its training precision."""

from __future__ import annotations

import torch

from sparing.train.trainer import resolve_precision


def device() -> torch.device:
    """The accelerator, else the processor."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    return torch.device("cpu") if accelerator is None else accelerator


def usual_dtype(device: torch.device) -> torch.dtype:
    """The default training precision of a device: bfloat16 on accelerators that have it."""
    dtype: torch.dtype = getattr(torch, resolve_precision("auto", cpu=device.type == "cpu"))
    return dtype


def lowered(device: torch.device) -> torch.autocast:
    """Autocast to the usual precision; where that is float32 it changes nothing."""
    kind = usual_dtype(device)
    return torch.autocast(device.type, dtype=kind, enabled=kind is not torch.float32)
