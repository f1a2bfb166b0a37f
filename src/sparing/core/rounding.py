"""Bounds as they are printed: rounded to the side on which what is said stays true."""

from __future__ import annotations

import math

NOISE = 1e-9  # of the last decimal: a bound that is a round number stays it


def rounded_up(value: float, decimals: int) -> float:
    """The least number of so many decimals that an upper bound may be printed as."""
    scale = 10.0**decimals
    return math.ceil(value * scale - NOISE) / scale


def rounded_down(value: float, decimals: int) -> float:
    """The greatest number of so many decimals that a lower bound may be printed as."""
    return -rounded_up(-value, decimals)
