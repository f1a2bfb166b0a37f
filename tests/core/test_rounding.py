"""Bounds that are printed say no more than was shown."""

from __future__ import annotations

import pytest

from sparing.core.rounding import rounded_down, rounded_up


@pytest.mark.parametrize(
    ("value", "decimals", "up", "down"),
    [
        (0.03508, 3, 0.036, 0.035),
        (-0.5648, 2, -0.56, -0.57),
        (0.04, 2, 0.04, 0.04),
        (0.1 + 0.2, 1, 0.3, 0.3),
        (-0.3, 1, -0.3, -0.3),
        (0.0, 3, 0.0, 0.0),
    ],
)
def test_rounded_to_the_side_that_stays_true(value, decimals, up, down):
    assert rounded_up(value, decimals) == pytest.approx(up, abs=1e-12)
    assert rounded_down(value, decimals) == pytest.approx(down, abs=1e-12)
