"""Packing loses nothing, mixes no sequences, and refuses an empty one."""

from __future__ import annotations

import pytest
import torch

from sparing.core.errors import UsageError
from sparing.layers.packing import Layout, Packed, Padded, pack

KEEPS = {
    "ragged": [[1, 1, 1, 1, 1], [1, 0, 0, 0, 0], [1, 1, 1, 0, 0]],
    "left": [[1, 1, 1, 1, 1], [0, 0, 0, 0, 1], [0, 0, 1, 1, 1]],
    "between": [[1, 0, 1, 0, 1], [0, 1, 1, 0, 0], [1, 1, 1, 1, 1]],
    "equal, but not in place": [[1, 1, 0, 0, 0], [0, 1, 0, 1, 0], [0, 0, 0, 1, 1]],
    "one": [[0, 1, 1, 0, 0]],
    "all": [[1] * 5, [1] * 5],
}


def _given(name):
    keep = torch.tensor(KEEPS[name], dtype=torch.bool)
    padded = torch.randn(*keep.shape, 2, dtype=torch.float64)
    padded[~keep] = torch.nan
    return padded, keep


@pytest.mark.parametrize("name", KEEPS)
def test_real_tokens_stand_up_and_lie_down_again(name):
    padded, keep = _given(name)
    rows, layout = pack(padded, keep)
    parts = [sequence[real] for sequence, real in zip(padded, keep, strict=True)]
    assert torch.equal(rows, torch.cat(parts))
    standing = layout.to_padded(rows)
    assert standing.shape == (len(parts), max(map(len, parts)), 2)
    for sequence, part in zip(standing, parts, strict=True):
        assert torch.equal(sequence[: len(part)], part)
    assert bool(standing.isfinite().all()), "a pad must not spoil sums, even when weighted by 0"
    assert torch.equal(layout.to_rows(standing), rows)
    assert torch.equal(layout.first(rows), torch.stack([part[0] for part in parts]))


@pytest.mark.parametrize("name", KEEPS)
def test_only_real_tokens_are_visible(name):
    padded, keep = _given(name)
    layout = pack(padded, keep)[1]
    lengths = keep.sum(1)
    expected = torch.arange(int(lengths.max())) < lengths[:, None]
    assert torch.equal(layout.keep, expected)
    if layout.even:
        assert layout.visible is None
        assert bool(expected.all())
    else:
        assert torch.equal(layout.visible[:, 0, 0], expected)
    owners = [number for number, length in enumerate(lengths.tolist()) for _ in range(length)]
    assert layout.owner.tolist() == owners


def test_without_a_mask_every_token_is_real():
    padded = torch.randn(3, 4, 2)
    rows, layout = pack(padded, None)
    assert layout.lengths.tolist() == [4, 4, 4]
    assert torch.equal(layout.to_padded(rows), padded)


def test_a_sequence_of_pads_alone_is_refused():
    keep = torch.tensor([[1, 1], [0, 0]], dtype=torch.bool)
    with pytest.raises(UsageError, match="at least one real token"):
        pack(torch.randn(2, 2, 2), keep)
    with pytest.raises(UsageError, match="at least one real token"):
        pack(torch.randn(2, 0, 2), None)


def test_a_batch_of_nobody():
    for keep in (None, torch.zeros(0, 5, dtype=torch.bool)):
        rows, layout = pack(torch.zeros(0, 5, 2), keep)
        assert rows.shape == (0, 2)
        assert layout.to_rows(layout.to_padded(rows)).shape == (0, 2)
        assert layout.first(rows).shape == (0, 2)
        assert layout.longest == 0


def test_those_who_stay_take_their_rows_along():
    lengths = torch.tensor([2, 1, 3])
    rows = torch.arange(6.0)[:, None]
    remaining, layout = Packed(lengths).stay(rows, torch.tensor([True, False, True]))
    assert remaining[:, 0].tolist() == [0, 1, 3, 4, 5]
    assert layout.lengths.tolist() == [2, 3]
    none, empty = Packed(lengths).stay(rows, torch.zeros(3, dtype=torch.bool))
    assert (len(none), len(empty.lengths)) == (0, 0)


def test_rows_that_are_kept():
    layout = Packed(torch.tensor([2, 1, 3]))
    keep = torch.tensor([True, False, True, False, True, True])
    assert layout.choose(keep).lengths.tolist() == [1, 1, 2]
    keep[2] = False
    with pytest.raises(UsageError, match="at least one real token"):
        layout.choose(keep)


def test_a_padded_layout_leaves_rows_where_they_are():
    padded, keep = _given("between")
    layout = Padded(keep)
    assert layout.to_padded(padded) is layout.to_rows(padded) is padded
    assert torch.equal(layout.visible, keep[:, None, None, :])
    assert torch.equal(layout.first(padded[2:]), padded[2:, 0])
    assert Padded().visible is None
    assert isinstance(layout, Layout)
    assert isinstance(Packed(torch.tensor([1])), Layout)
