"""Dropping tokens on padded rows: the same tokens as on packed ones, in shapes known beforehand."""

from __future__ import annotations

import pytest
import torch

from sparing.layers.capacity import Capacity, drop_padded
from sparing.layers.gates import kept_tokens
from sparing.layers.packing import Packed, pack
from sparing.layers.plan import Plan


@pytest.mark.parametrize("share", [1.0, 0.9, 2 / 3, 0.55, 0.5, 0.3, 0.01])
def test_whole_numbers_round_up_as_shares_do(share):
    capacity = Capacity.from_share(share)
    lengths = torch.arange(1, 300)
    expected = (lengths.double() * share - 1e-6).ceil().clamp(min=1).long()
    assert torch.equal(capacity.of_lengths(lengths), expected)
    assert [capacity.of_count(int(length)) for length in lengths] == expected.tolist()


@pytest.mark.parametrize("share", [1.0, 0.7, 0.5, 0.2])
@pytest.mark.parametrize("lengths", [(9, 4, 7, 1), (5, 5), (1,)])
def test_padded_and_packed_rows_keep_the_same_tokens(share, lengths):
    generator = torch.Generator().manual_seed(3)
    tokens = max(lengths)
    rows = torch.randn(len(lengths), tokens, 2, generator=generator, dtype=torch.float64)
    received = torch.rand(len(lengths), tokens, generator=generator, dtype=torch.float64)
    keep = torch.arange(tokens) < torch.tensor(lengths)[:, None]
    plan = Plan((1,) * 3, (1,) * 3, tokens_kept=share, tokens_after=1)
    packed, layout = pack(rows, keep)
    selected = kept_tokens(received * keep, layout, plan)
    expected = packed[selected].split(layout.choose(selected).lengths.tolist())
    capacity = Capacity.from_share(share)
    rows_left = drop_padded(rows, received, keep, capacity)
    keep_after = capacity.keep_after(keep)
    assert rows_left.shape[1] == capacity.of_count(tokens)
    for row, mask, expected_rows in zip(rows_left, keep_after, expected, strict=True):
        assert torch.equal(row[mask], expected_rows)


def test_without_pads_the_order_of_tokens_stays():
    rows = torch.arange(6.0)[None, :, None]
    received = torch.tensor([[0.0, 0.3, 0.1, 0.2, 0.4, 0.0]])
    rows_left = drop_padded(rows, received, None, Capacity.from_share(0.5))
    assert rows_left[0, :, 0].tolist() == [0.0, 1.0, 4.0]


def test_the_layout_that_is_left_fits_the_rows():
    keep = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]]).bool()
    keep_after = Capacity.from_share(0.5).keep_after(keep)
    assert keep_after.tolist() == [[True, True], [True, False]]
    assert Packed(keep_after.sum(1)).lengths.tolist() == [2, 1]
