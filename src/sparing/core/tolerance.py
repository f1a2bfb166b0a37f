"""The tolerated difference of two correct results, per element type, with its reason."""

from __future__ import annotations

from typing import NamedTuple

import torch


class Tolerance(NamedTuple):
    """Relative and absolute tolerance, and their reason."""

    relative: float
    absolute: float
    reason: str


TOLERANCES: dict[torch.dtype, Tolerance] = {
    torch.float64: Tolerance(
        1e-10, 1e-10, "sums of some thousand terms at 2e-16 each, with room for reordering"
    ),
    torch.float32: Tolerance(
        1e-4, 2e-5, "sums of some hundred terms at 6e-8 each; exponentials amplify by ten"
    ),
    torch.float16: Tolerance(
        2e-2, 1e-2, "inputs and outputs carry 11 bits; inner sums run in float32"
    ),
    torch.bfloat16: Tolerance(
        8e-2, 4e-2, "inputs and outputs carry 8 bits; inner sums run in float32"
    ),
}


def tolerance(dtype: torch.dtype) -> Tolerance:
    """The tolerance for comparing results computed in ``dtype``."""
    return TOLERANCES[dtype]
