"""What a mask lets queries see, element by element."""

from __future__ import annotations

import pytest
import torch

from sparing.core.errors import UsageError
from sparing.core.mask import Mask

KEEP = torch.tensor([[0, 1, 1, 0], [1, 1, 1, 1], [0, 0, 0, 0]], dtype=torch.bool)


def _grid(rows):
    return torch.tensor(rows, dtype=torch.bool)


def test_the_square_by_hand():
    assert Mask().dense(2, 4) is None
    causal = Mask(causal=True).dense(2, 4)
    assert causal.shape == (1, 1, 2, 4)
    assert torch.equal(causal[0, 0], _grid([[1, 1, 1, 0], [1, 1, 1, 1]]))
    padded = Mask(KEEP).dense(2, 4)
    assert padded.shape == (3, 1, 2, 4)
    assert torch.equal(padded[0, 0], _grid([[0, 1, 1, 0]] * 2))
    both = Mask(KEEP, causal=True).dense(4, 4)
    assert torch.equal(both[0, 0], _grid([[0, 0, 0, 0], [0, 1, 0, 0], [0, 1, 1, 0], [0, 1, 1, 0]]))


def test_opened_rows_let_a_query_that_sees_nothing_see_all():
    assert Mask().opened(4, 4) is None
    padded = Mask(KEEP).opened(4, 4)
    assert padded.shape == (3, 1, 1, 4)
    assert torch.equal(padded[:, 0, 0], _grid([[0, 1, 1, 0], [1, 1, 1, 1], [1, 1, 1, 1]]))
    both = Mask(KEEP, causal=True).opened(4, 4)
    assert torch.equal(both[0, 0], _grid([[1, 1, 1, 1], [0, 1, 0, 0], [0, 1, 1, 0], [0, 1, 1, 0]]))
    assert bool(both[2].all())


def test_opened_is_built_once_for_one_size_and_anew_for_another_or_after_a_change():
    keep = KEEP.clone()
    mask = Mask(keep)
    first = mask.opened(4, 4)
    assert mask.opened(4, 4) is first
    assert Mask(keep).opened(4, 4) is not first
    assert mask.opened(3, 4) is not first
    again = mask.opened(4, 4)
    keep[0, 0] = True
    changed = mask.opened(4, 4)
    assert changed is not again
    assert changed[0, 0, 0].tolist() == [True, True, True, False]
    causal = Mask(causal=True)
    assert causal.opened(3, 3) is causal.opened(3, 3)
    assert torch.equal(causal.opened(2, 2)[0, 0], _grid([[1, 0], [1, 1]]))


@torch.inference_mode()
def test_a_change_in_inference_mode_is_seen_too():
    mask = Mask(KEEP.clone())
    first = mask.opened(4, 4)
    assert mask.opened(4, 4) is first
    mask.keep[0, 3] = True
    assert mask.opened(4, 4)[0, 0, 0].tolist() == [False, True, True, True]


def test_which_queries_see_anything():
    assert Mask().sees_any(4) is None
    assert Mask(causal=True).sees_any(4) is None
    assert Mask(KEEP).sees_any(4).tolist() == [[True], [True], [False]]
    expected = _grid([[0, 1, 1, 1], [1, 1, 1, 1], [0, 0, 0, 0]])
    assert torch.equal(Mask(KEEP, causal=True).sees_any(4), expected)
    assert torch.equal(Mask(KEEP, causal=True).sees_any(3), expected[:, 1:])


def test_which_queries_are_real():
    assert Mask().keep_queries(4) is None
    assert torch.equal(Mask(KEEP).keep_queries(4), KEEP)
    assert Mask(KEEP).keep_queries(3) is None
    assert Mask(KEEP, cross=True).keep_queries(4) is None
    assert torch.equal(Mask(KEEP, causal=True).keep_queries(3), KEEP[:, 1:])


def test_another_sequence_is_told_by_its_length_unless_causal():
    assert not Mask().is_cross(4, 4)
    assert Mask().is_cross(3, 4)
    assert Mask(cross=True).is_cross(4, 4)
    assert not Mask(causal=True).is_cross(3, 4)


def test_where_a_sequence_begins_and_how_long_it_is_cropped():
    keep = _grid([[0, 1, 0, 1], [1, 0, 0, 0], [0, 0, 0, 0], [1, 1, 1, 1], [0, 0, 0, 1]])
    assert Mask(keep).first().tolist() == [1, 0, 0, 0, 3]
    assert Mask(keep).span().tolist() == [3, 1, 0, 4, 1]


@pytest.mark.parametrize(
    "keep", [torch.ones(2, 3), torch.ones(3, dtype=torch.bool), torch.ones(1, 2, 3) > 0]
)
def test_other_tensors_are_refused(keep):
    with pytest.raises((UsageError, TypeError), match="keep"):
        Mask(keep)


@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.parametrize("keep", [torch.ones(2, 3), torch.ones(3) > 0, torch.ones(1, 2, 3) > 0])
def test_other_tensors_are_refused_where_annotations_are_not_checked(keep):
    with pytest.raises(UsageError, match=r"boolean tensor \(batch, keys\)"):
        Mask(keep)


def test_what_is_built_on_the_way_is_not_printed():
    mask = Mask(KEEP)
    before = repr(mask)
    mask.opened(4, 4)
    assert repr(mask) == before


def test_causal_and_cross_exclude_each_other():
    with pytest.raises(UsageError, match="exclude"):
        Mask(causal=True, cross=True)
