"""Skyformer: the dense Gaussian in the limit, what is sampled, the steps of the inverse."""

from __future__ import annotations

import math

import pytest
import torch

from sparing import Heads, Mask, Unsupported, UsageError, mechanism
from sparing.testing.entries.skyformer import dense_skyformer


def built(dim=4, **options):
    return mechanism("skyformer", Heads(2, dim), **options)


def drawn(queries, keys=None, dim=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return tuple(
        torch.randn(2, 2, n, dim, generator=generator, dtype=torch.float64)
        for n in (queries, keys or queries, keys or queries)
    )


def dense_gaussian(q, k, v, variance, keep=None):
    """The whole kernel, each pair on its own; pads have no weight."""
    weights = torch.exp(-torch.cdist(q, k).square() / (2 * variance))
    return (weights if keep is None else weights.where(keep[:, None, None], 0)) @ v


@pytest.mark.parametrize("inverse", ["exact", "iterative"])
@pytest.mark.parametrize("keys", [None, 9])
def test_all_rows_and_no_ridge_are_the_dense_gaussian(inverse, keys):
    made = built(landmarks=100, ridge=1e-11, inverse=inverse, iterations=24)
    q, k, v = drawn(15, keys)
    keep = torch.ones(2, k.shape[2], dtype=torch.bool)
    keep[0, 6:] = keep[1, 2] = False
    for mask in (Mask(), Mask(keep)):
        output = made(q, k, v, mask=mask)
        expected = dense_gaussian(q, k, v, math.sqrt(4), mask.keep)
        if mask.keep_queries(15) is not None:
            output, expected = (
                part.where(keep[:, None, :, None], 0) for part in (output, expected)
            )
        torch.testing.assert_close(output, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dim", [8, 32, 64])
def test_the_kernel_widens_with_the_head(dim):
    """The authors' code divides by 32^(1/4) whatever the width of a head."""
    q, k, v = drawn(12, dim=dim)
    output = built(dim, landmarks=24, ridge=1e-11)(q, k, v)
    expected, other = (dense_gaussian(q, k, v, math.sqrt(width)) for width in (dim, 32))
    torch.testing.assert_close(output, expected, rtol=1e-6, atol=1e-8)
    assert torch.allclose(output, other, rtol=1e-2) == (dim == 32)


def test_long_rows_in_groups_of_heads_equal_the_reference():
    made = built(landmarks=10)
    for tokens in (257, 9000):
        streams = drawn(tokens)
        torch.testing.assert_close(
            made(*streams), dense_skyformer(made, *streams, mask=Mask()), rtol=1e-9, atol=1e-9
        )


def test_one_real_token_of_each_part_is_drawn():
    made = built(landmarks=7)
    q = torch.arange(40.0).view(1, 1, 20, 2).expand(1, 2, 20, 2)
    k = 100 + q
    keep = torch.ones(1, 20, dtype=torch.bool)
    keep[0, 14:] = keep[0, 3] = False
    sample, filled = made._sample(q, k, keep, keep)
    assert bool(filled.all())
    assert torch.equal(sample[:, 0], sample[:, 1])
    rows = torch.cat([q[0, 0, keep[0]], k[0, 0, keep[0]]])
    ranks = [(rows == row).all(1).nonzero().item() for row in sample[0, 0]]
    for part, rank in enumerate(ranks):
        assert part * 26 // 7 <= rank < (part + 1) * 26 // 7
    ranks_of_other_seed = built(landmarks=7, seed=3)._sample(q, k, keep, keep)[0]
    assert not torch.equal(sample, ranks_of_other_seed)


def test_fewer_rows_than_landmarks_are_all_drawn_once():
    q, k, _ = drawn(3, 5)
    sample, filled = built(landmarks=64)._sample(q, k, None, None)
    assert filled is None
    torch.testing.assert_close(sample, torch.cat([q, k], 2))


def test_half_precision_draws_the_same_rows():
    made = built(landmarks=200, seed=5)
    places = made.places.clone()
    assert torch.equal(made.half().places, places)
    assert int(places.max()) < 2**31
    assert len(places.unique()) == 200


def test_steps_lead_to_the_solution():
    streams = drawn(60)
    exact = built(landmarks=16)(*streams)
    gaps = [
        (built(landmarks=16, inverse="iterative", iterations=count)(*streams) - exact).abs().max()
        for count in (1, 3, 6, 12)
    ]
    assert gaps[0] > gaps[1] > gaps[2] > gaps[3]
    assert gaps[3] < 1e-9


def test_weights_are_not_divided_by_their_sum():
    q, k, v = drawn(50)
    near, far = (built(landmarks=100)(q, k + shift, torch.ones_like(v)) for shift in (0.0, 30.0))
    assert near.min() > 1.5
    assert far.abs().max() < 1e-12


def test_a_vanishing_ridge_and_equal_rows_stay_finite():
    q, k, v = (part.float() for part in drawn(40))
    made = built(landmarks=30, ridge=1e-4)
    assert bool(torch.isfinite(made(q * 0, k * 0, v)).all())


def test_causality_is_refused():
    with pytest.raises(Unsupported, match="causal"):
        built()(*drawn(5), mask=Mask(causal=True))


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"landmarks": 0}, "landmarks"),
        ({"iterations": 0}, "iterations"),
        ({"ridge": 0.0}, "ridge"),
        ({"inverse": "exakt"}, "'exact'"),
    ],
)
def test_impossible_options_are_refused(options, named):
    with pytest.raises(UsageError, match=named):
        built(**options)
