"""Means over packed and padded rows, against worked examples."""

from __future__ import annotations

import pytest
import torch

from sparing.layers.packing import Padded, mean_after_first, pack

VALUES = torch.tensor(
    [
        [[100.0, -1.0], [1.0, 2.0], [3.0, 4.0], [8.0, 0.0]],
        [[200.0, -2.0], [5.0, 7.0], [torch.nan, torch.nan], [torch.nan, torch.nan]],
    ],
    dtype=torch.float64,
)
KEEP = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]], dtype=torch.bool)
MEANS = torch.tensor([[4.0, 2.0], [5.0, 7.0]], dtype=torch.float64)


@pytest.mark.parametrize("padded", [True, False])
def test_the_mean_leaves_out_the_first_row_and_the_pads(padded):
    # weights of 0 do not remove NaN: a padded layout holds finite pads, as models give them
    finite = VALUES.nan_to_num(99.0)
    rows, layout = (finite, Padded(KEEP)) if padded else pack(VALUES, KEEP)
    torch.testing.assert_close(mean_after_first(rows, layout), MEANS)


@pytest.mark.parametrize("padded", [True, False])
def test_the_mean_of_rows_without_pads(padded):
    whole = VALUES[:1]
    rows, layout = (whole, Padded()) if padded else pack(whole, None)
    torch.testing.assert_close(mean_after_first(rows, layout), MEANS[:1])


def test_a_sequence_leaves_and_rows_are_dropped():
    rows, layout = pack(VALUES, KEEP)
    fewer, rest = layout.stay(rows, torch.tensor([False, True]))
    assert torch.equal(fewer, VALUES[1, :2])
    assert rest.lengths.tolist() == [2]
    keep = torch.tensor([True, False, True, True, True, False])
    assert layout.choose(keep).lengths.tolist() == [3, 1]
    assert layout.starts.tolist() == [0, 4]
    assert (layout.longest, layout.even, rest.even) == (4, False, True)
