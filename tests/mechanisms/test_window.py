"""The sliding window against an explicit band, and how the band is cut into blocks."""

from __future__ import annotations

import math

import pytest
import torch

from sparing import Heads, Mask, UsageError, Workload, mechanism
from sparing.mechanisms._blocks import Band, plan
from sparing.testing.references import normalised


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


def dense_band(q, k, v, radius, mask):
    """Every weight written out; the queries are at the last of the keys' positions."""
    queries, keys = q.shape[2], k.shape[2]
    distance = torch.arange(keys) - torch.arange(queries)[:, None] - (keys - queries)
    weights = (q @ k.mT / math.sqrt(q.shape[-1])).exp().where(distance.abs() <= radius, 0)
    return normalised(weights, v, mask=mask)


def padded(kind, batch, keys):
    keep = torch.ones(batch, keys, dtype=torch.bool)
    if kind == "right":
        keep[0, keys * 2 // 3 :] = False
    elif kind == "left":
        keep[-1, : keys // 2] = False
    elif kind == "between":
        keep = torch.rand(batch, keys, generator=torch.Generator().manual_seed(3)) > 0.4
    return keep


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("radius", [0, 1, 5, 31, 128])
@pytest.mark.parametrize("kind", ["none", "right", "left", "between"])
def test_equals_the_dense_band(radius, kind):
    made = mechanism("window", Heads(2, 4), radius=radius)
    for batch, queries, keys in (
        (1, 1, 1),
        (2, 300, 300),
        (2, 701, 701),
        (2, 1, 400),
        (2, 90, 400),
    ):
        for causal in (False, True) if queries == keys else (True,):
            mask = Mask(None if kind == "none" else padded(kind, batch, keys), causal)
            q, k, v = (torch.randn(batch, 2, n, 4).double() for n in (queries, keys, keys))
            output, expected = made(q, k, v, mask=mask), dense_band(q, k, v, radius, mask)
            real = mask.keep_queries(queries)
            if real is not None:
                output, expected = (
                    part.where(real[:, None, :, None], 0) for part in (output, expected)
                )
            torch.testing.assert_close(output, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("causal", [False, True])
def test_gradients_through_many_blocks(causal):
    made = mechanism("window", Heads(1, 4), radius=20)
    mask = Mask(padded("left", 2, 700), causal)
    leaves = [torch.randn(2, 1, 700, 4, dtype=torch.float64, requires_grad=True) for _ in "qkv"]
    real = mask.keep[:, None, :, None]
    fast, slow = (
        torch.autograd.grad(out.where(real, 0).square().sum(), leaves)
        for out in (made(*leaves, mask=mask), dense_band(*leaves, 20, mask))
    )
    for gradient, expected in zip(fast, slow, strict=True):
        torch.testing.assert_close(
            gradient.where(real, 0), expected.where(real, 0), rtol=1e-9, atol=1e-9
        )


@pytest.mark.parametrize(("before", "after"), [(0, 0), (3, 3), (128, 128), (128, 0), (700, 700)])
@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (257, 257), (1000, 1000), (300, 1000)])
def test_pieces_cover_every_query_once_with_all_it_may_see(before, after, queries, keys):
    band, offset = Band(before, after), keys - queries
    pieces = plan(queries, keys, band)
    assert [piece.start for piece in pieces] == [0] + [piece.stop for piece in pieces[:-1]]
    assert pieces[-1].stop == queries
    for piece in pieces:
        assert piece.key_start == max(0, piece.start + offset - before)
        assert piece.key_stop == min(keys, piece.stop + offset + after)
        if piece.blocks > 1:
            size = (piece.stop - piece.start) // piece.blocks
            assert piece.blocks * size == piece.stop - piece.start
            assert piece.key_stop - piece.key_start == piece.stop - piece.start + before + after


def test_cost_stays_near_the_band():
    made = mechanism("window", Heads(1, 1), radius=128)
    for tokens, waste in ((4096, 1.15), (65536, 1.13)):
        flops = made.cost(Workload(1, 1, tokens, tokens, 1)).matmul_flops
        assert 1 < flops / (4 * tokens * 257) < waste


def test_dropout_drops_in_training_only():
    made = mechanism("window", Heads(1, 4), radius=4, dropout=0.5)
    q, k, v = (torch.randn(1, 1, 100, 4) for _ in "qkv")
    assert not torch.equal(made.train()(q, k, v), made(q, k, v))
    made.eval()
    torch.testing.assert_close(made(q, k, v), mechanism("window", Heads(1, 4), radius=4)(q, k, v))


def test_a_negative_radius_is_refused():
    with pytest.raises(UsageError, match="radius"):
        mechanism("window", Heads(1, 4), radius=-1)
