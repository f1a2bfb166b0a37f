"""Where studies work: on the accelerator where there is one, in the precision it trains in."""

from __future__ import annotations

import torch

from sparing.train.trainer import resolve_precision


def device() -> torch.device:
    """The accelerator, else the processor."""
    found = torch.accelerator.current_accelerator(check_available=True)
    return torch.device("cpu") if found is None else found


def usual_dtype(place: torch.device) -> torch.dtype:
    """What a training takes there by itself: bfloat16 on accelerators that have it."""
    found: torch.dtype = getattr(torch, resolve_precision("auto", cpu=place.type == "cpu"))
    return found


def lowered(place: torch.device) -> torch.autocast:
    """Autocast to the usual precision; where that is float32 it changes nothing."""
    kind = usual_dtype(place)
    return torch.autocast(place.type, dtype=kind, enabled=kind is not torch.float32)
