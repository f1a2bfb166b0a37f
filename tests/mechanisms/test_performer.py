"""Performer against its weights written out, in extremes, and against softmax itself."""

from __future__ import annotations

import io
import math

import pytest
import torch

from sparing import Heads, Mask, UsageError, Workload, mechanism
from sparing.testing.entries.performer import dense_performer

CAUSAL = [False, True]


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


def streams(batch, queries, keys=None, dim=8, heads=2, dtype=torch.float64):
    lengths = (queries, keys or queries, keys or queries)
    return [torch.randn(batch, heads, n, dim, dtype=torch.float64).to(dtype) for n in lengths]


def padded(batch, keys):
    keep = torch.ones(batch, keys, dtype=torch.bool)
    keep[0, : keys // 3] = False
    keep[-1, keys - 5 :] = False
    return keep


def log_space(made, q, k, v, causal):
    """FAVOR+ without epsilon in float64: features are never taken out of the logarithm."""
    rows, norm = made.directions.rows.double(), q.shape[-1] ** -0.25
    q, k = q.double() * norm, k.double() * norm
    a, b = q @ rows.T, k @ rows.T - k.square().sum(-1, keepdim=True) / 2
    logs = (a[..., :, None, :] + b[..., None, :, :]).logsumexp(-1)
    if causal:
        logs = logs.masked_fill(torch.ones(logs.shape[-2:]).triu(1).bool(), -torch.inf)
    return logs.softmax(-1) @ v.double()


@pytest.mark.parametrize("causal", CAUSAL)
@pytest.mark.parametrize("feature_map", ["positive", "relu"])
def test_equals_its_weights_written_out_across_chunks(feature_map, causal):
    made = mechanism("performer", Heads(2, 8), feature_map=feature_map, features=20).double()
    for queries, keys in ((511, 511), (1026, 1026), (1, 600), (64, 577), (130, 1089)):
        if not causal and queries != keys:
            continue
        q, k, v = streams(2, queries, keys)
        for keep in (None, padded(2, keys)):
            mask = Mask(keep, causal)
            with torch.no_grad():
                output, expected = (
                    made(q, k, v, mask=mask),
                    dense_performer(made, q, k, v, mask=mask),
                )
            keep_queries = mask.keep_queries(queries)
            if keep_queries is not None:
                output, expected = (
                    part.where(keep_queries[:, None, :, None], 0) for part in (output, expected)
                )
            torch.testing.assert_close(output, expected, rtol=1e-10, atol=1e-10)


def test_more_keys_than_queries_without_causality():
    made = mechanism("performer", Heads(2, 8)).double()
    for queries, keys in ((3, 1100), (1100, 3), (600, 1)):
        q, k, v = streams(1, queries, keys)
        mask = Mask(cross=True)
        expected = dense_performer(made, q, k, v, mask=mask)
        torch.testing.assert_close(made(q, k, v, mask=mask), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("causal", CAUSAL)
@pytest.mark.parametrize("feature_map", ["positive", "relu"])
def test_with_gradients_it_is_the_same(feature_map, causal):
    made = mechanism("performer", Heads(3, 8), feature_map=feature_map).double()
    mask = Mask(padded(2, 700), causal)
    leaves = [stream.requires_grad_() for stream in streams(2, 700, heads=3)]
    recorded = made(*leaves, mask=mask)
    with torch.no_grad():
        chunked = made(*leaves, mask=mask)
    torch.testing.assert_close(recorded, chunked, rtol=1e-10, atol=1e-10)
    real = mask.keep[:, None, :, None]
    slow = dense_performer(made, *leaves, mask=mask)
    gradients, expected = (
        torch.autograd.grad(out.where(real, 0).square().sum(), leaves) for out in (recorded, slow)
    )
    for fast, dense in zip(gradients, expected, strict=True):
        torch.testing.assert_close(fast.where(real, 0), dense.where(real, 0), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("scale", [1.0, 5.0, 20.0])
def test_nothing_vanishes_in_single_precision(scale):
    """Key features as small as exp(-1000): written out they would be 0, and 0 / 0 the result."""
    made = mechanism("performer", Heads(2, 64))
    q, k, v = streams(1, 150, dim=64, dtype=torch.float32)
    q, k = q * scale, k * scale
    expected = log_space(made, q, k, v, causal=False)
    torch.testing.assert_close(made(q, k, v).double(), expected, rtol=2e-3, atol=2e-3)


def test_a_later_key_does_not_sink_earlier_ones():
    """The features of the last key are exp(100) times all earlier ones, in the same block."""
    made = mechanism("performer", Heads(2, 64))
    q, k, v = streams(1, 50, dim=64, dtype=torch.float32)
    k[:, :, :-1] *= 6
    k[:, :, -1] *= 0.1
    output = made(q, k, v, mask=Mask(causal=True))
    torch.testing.assert_close(
        output.double(), log_space(made, q, k, v, causal=True), rtol=2e-3, atol=2e-3
    )
    k[:, :, -1] = 0
    changed = made(q, k, v, mask=Mask(causal=True))
    torch.testing.assert_close(changed[:, :, :-1], output[:, :, :-1], rtol=1e-4, atol=1e-5)


def test_a_causal_row_begins_with_its_own_value():
    made = mechanism("performer", Heads(2, 64))
    q, k, v = (50 * stream for stream in streams(1, 3, dim=64, dtype=torch.float32))
    k[:, :, 0] = -q[:, :, 0]  # no feature is large for both
    output = made(q, k, v, mask=Mask(causal=True))
    torch.testing.assert_close(output[:, :, 0], v[:, :, 0])


def test_products_of_features_estimate_the_exponential():
    """Over 200 draws of 16 features the mean is within five standard errors."""
    q, k = torch.randn(2, 8).double() * 0.7
    expected = math.exp(q @ k / math.sqrt(8))
    for orthogonal in (False, True):
        made = mechanism("performer", Heads(1, 8), features=16, orthogonal=orthogonal)
        products = []
        for _ in range(200):
            made.redraw()
            a, b = (
                (made.directions.rows.double() @ y - y @ y / 2).exp()
                for y in (q * 8**-0.25, k * 8**-0.25)
            )
            products.append((a @ b / 16).item())
        drawn = torch.tensor(products)
        assert abs(drawn.mean() - expected) < 5 * drawn.std() / math.sqrt(200)


def test_tends_to_softmax_as_features_grow():
    """The error falls about as 1 / sqrt(features): 64 times as many make it 8 times smaller."""
    q, k, v = streams(1, 60)
    q, k = q / 2, k / 2
    expected = mechanism("softmax", Heads(2, 8))(q, k, v)
    errors = [
        torch.stack(
            [
                mechanism("performer", Heads(2, 8), features=count, seed=seed).double()(q, k, v)
                - expected
                for seed in range(8)
            ]
        )
        .square()
        .mean()
        .sqrt()
        .item()
        for count in (64, 4096)
    ]
    assert 4 < errors[0] / errors[1] < 16
    assert errors[1] < 0.02


def test_directions_are_orthogonal_in_groups_and_long_as_asked():
    rows = mechanism("performer", Heads(1, 16), features=40).directions.rows
    for group in rows.split(16):
        square = group @ group.T
        torch.testing.assert_close(square, torch.diag(square.diagonal()), atol=1e-4, rtol=0)
    assert rows.norm(dim=1).std() > 0.1
    for orthogonal in (False, True):
        options = {"features": 40, "scaling": "fixed", "orthogonal": orthogonal}
        rows = mechanism("performer", Heads(1, 16), **options).directions.rows
        torch.testing.assert_close(rows.norm(dim=1), torch.full((40,), 4.0))
    many = mechanism("performer", Heads(1, 16), features=4000).directions.rows
    assert abs(many.square().mean() - 1) < 0.05
    assert many.mean(0).abs().max() < 0.1


def test_redraw_takes_the_next_ones_after_a_restore_too():
    made = mechanism("performer", Heads(2, 8))
    first = made.directions.rows.clone()
    made.redraw()
    second = made.directions.rows.clone()
    assert not torch.equal(first, second)
    file = io.BytesIO()
    torch.save(made.state_dict(), file)
    file.seek(0)
    other = mechanism("performer", Heads(2, 8), seed=99)
    other.load_state_dict(torch.load(file, weights_only=True))
    for drawn in (made, other):
        drawn.redraw()
    assert torch.equal(made.directions.rows, other.directions.rows)
    assert not torch.equal(made.directions.rows, second)


def test_features_default_to_dim_times_its_logarithm():
    for dim, count in ((64, 266), (8, 16), (1, 1)):
        made = mechanism("performer", Heads(2, dim))
        assert made.directions.rows.shape == (count, dim)
        assert made.options()["features"] is None
        assert made(*torch.randn(3, 1, 2, 5, dim)).isfinite().all()


def test_memory_does_not_hold_a_state_for_each_token():
    cost = mechanism("performer", Heads(12, 64)).cost
    for causal in CAUSAL:
        once, more = (
            cost(Workload(1, 12, n, n, 64, causal=causal)).peak_bytes for n in (4096, 16384)
        )
        assert more < 4.4 * once
        assert more < 2 * 12 * 16384 * 64 * 4


@pytest.mark.parametrize(
    ("option", "value"), [("features", 0), ("feature_map", "cosine"), ("scaling", "none")]
)
def test_impossible_options_are_refused(option, value):
    with pytest.raises(UsageError, match=option):
        mechanism("performer", Heads(1, 4), **{option: value})
