"""Bounds rounded for print, to the side on which the statement stays true."""

from __future__ import annotations

import math

NOISE = 1e-9  # of the last decimal: a bound that is a round number does not change


def rounded_up(value: float, decimals: int) -> float:
    """The least number with ``decimals`` decimals that can be printed for an upper bound."""
    scale = 10.0**decimals
    return math.ceil(value * scale - NOISE) / scale


def rounded_down(value: float, decimals: int) -> float:
    """The greatest number with ``decimals`` decimals that can be printed for a lower bound."""
    return -rounded_up(-value, decimals)
