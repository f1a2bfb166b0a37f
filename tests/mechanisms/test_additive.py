"""Additive attention: by hand, chunks against the whole, and what is never stored."""

from __future__ import annotations

import math

import pytest
import torch

from sparing import Heads, Mask, UsageError, mechanism
from sparing.mechanisms import _pairs
from sparing.testing.entries.additive import dense_additive
from sparing.testing.mathematics import _LargestTensor


def drawn(queries, keys=None, batch=2):
    generator = torch.Generator().manual_seed(0)
    return tuple(
        torch.randn(batch, 2, n, 4, generator=generator, dtype=torch.float64)
        for n in (queries, keys or queries, keys or queries)
    )


def test_by_hand():
    made = mechanism("additive", Heads(1, 2), hidden_dim=1)
    with torch.no_grad():
        made.query_weight.copy_(torch.tensor([[[1.0, 0.0]]]))
        made.key_weight.copy_(torch.tensor([[[0.0, 2.0]]]))
        made.bias.fill_(0.5)
        made.score_weight.fill_(3.0)
    q = torch.tensor([[[[0.25, 9.0]]]])
    k = torch.tensor([[[[9.0, 0.0], [9.0, -1.0]]]])
    output = made(q, k, torch.eye(2)[None, None])
    expected = torch.tensor([3 * math.tanh(0.75), 3 * math.tanh(-1.25)]).softmax(0)
    torch.testing.assert_close(output.flatten(), expected)


@pytest.mark.parametrize("held", [1, 200])
def test_pieces_do_not_matter(monkeypatch, held):
    made = mechanism("additive", Heads(2, 4), hidden_dim=3).double()
    keep = torch.ones(2, 13, dtype=torch.bool)
    keep[0, 10:] = keep[1, :3] = keep[1, 7] = False
    for queries, causal in ((13, True), (4, True), (4, False)):
        mask = Mask(keep, causal)
        streams = drawn(queries, 13)
        monkeypatch.setattr(_pairs, "_HELD", held)
        output = made(*streams, mask=mask)
        monkeypatch.undo()
        expected = dense_additive(made, *streams, mask=mask)
        real = mask.keep_queries(queries)
        if real is not None:
            output, expected = (t.where(real[:, None, :, None], 0) for t in (output, expected))
        torch.testing.assert_close(output, expected)


def test_pairs_times_hidden_never_stand_together():
    made = mechanism("additive", Heads(2, 4), hidden_dim=64)
    q, k, v = (t.float() for t in drawn(300, batch=1))
    with torch.no_grad(), _LargestTensor() as largest:
        made(q, k, v)
    assert largest.elements <= _pairs._HELD < 300 * 300 * 64


def test_one_piece_holds_one_row_where_a_row_is_all_that_fits():
    shapes = []

    def scores(q, k, heads):
        shapes.append((*q.shape[:3], k.shape[2], heads))
        return torch.zeros(*q.shape[:3], k.shape[2])

    q = torch.zeros(2, 3, 2, 1)
    k = torch.zeros(2, 3, 700, 1)
    out = _pairs.attend_by_scores(scores, q, k, torch.ones(2, 3, 700, 5), Mask(), 1000)
    assert len(shapes) == 12
    assert {shape[:4] for shape in shapes} == {(1, 1, 1, 700)}
    assert [shape[4].start for shape in shapes] == [0, 0, 1, 1, 2, 2] * 2
    torch.testing.assert_close(out, torch.ones(2, 3, 2, 5))


def test_hidden_dim_is_dim_unless_given():
    assert mechanism("additive", Heads(2, 4)).score_weight.shape == (2, 4)
    assert mechanism("additive", Heads(2, 4), hidden_dim=7).key_weight.shape == (2, 7, 4)


def test_a_hidden_layer_of_nothing_is_refused():
    with pytest.raises(UsageError, match="hidden_dim"):
        mechanism("additive", Heads(2, 4), hidden_dim=0)
