"""What a share of the time allows at most, in worked examples, and how both are said together."""

from __future__ import annotations

import pytest

from sparing.measure.gains import LARGEST_SHARE, largest_gain, share_decimals
from sparing.measure.statistics import Ratio


def test_value_and_ends_are_each_of_one_share():
    gain = largest_gain(Ratio(0.5, (0.2, 0.75), 7))
    assert (gain.value, gain.interval, gain.count) == (2.0, (1.25, 4.0), 7)
    assert largest_gain(Ratio(0.0, None, 1)) == Ratio(1.0, None, 1)
    assert largest_gain(Ratio(1.2, None, 1)).value == pytest.approx(1 / (1 - LARGEST_SHARE))


@pytest.mark.parametrize(
    ("share", "decimals"), [(0.8, 0), (0.46, 0), (0.934637, 2), (0.07, 0), (0.0, 0), (0.99, 0)]
)
def test_who_divides_gets_the_gain_that_is_said(share, decimals):
    def shown(gain):
        return f"{gain:.1f}"

    assert share_decimals(share, shown) == decimals
    printed = float(f"{100 * share:.{decimals}f}") / 100
    assert shown(1 / (1 - printed)) == shown(1 / (1 - share))
