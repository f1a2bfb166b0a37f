"""Nystromformer: against its formula written out, its landmarks, its residual, its convolution."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

import sparing
from sparing import Heads, Unsupported, UsageError, mechanism
from sparing.mechanisms._alignment import segment_means


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


def qkv(tokens, keys=None):
    return tuple(torch.randn(2, 2, n, 4).double() for n in (tokens, keys or tokens, keys or tokens))


def segments(tokens, landmarks):
    """The larger segments first; sizes differ by one at most."""
    size, larger = divmod(tokens, min(tokens, landmarks))
    sizes = [size + 1] * larger + [size] * (min(tokens, landmarks) - larger)
    borders = torch.tensor([0, *sizes]).cumsum(0).tolist()
    return list(itertools.pairwise(borders))


def means(x, landmarks):
    return torch.stack([x[:, :, a:b].mean(2) for a, b in segments(x.shape[2], landmarks)], 2)


def weights(a, b):
    return (a @ b.mT / math.sqrt(a.shape[-1])).softmax(-1)


@pytest.mark.parametrize(("tokens", "keys"), [(24, None), (31, None), (5, None), (31, 17), (3, 40)])
@pytest.mark.parametrize("pinv", ["exact", "iterative"])
def test_equals_its_formula_written_out(tokens, keys, pinv):
    made = mechanism("nystrom", Heads(2, 4), landmarks=6, pinv=pinv, iterations=60)
    q, k, v = qkv(tokens, keys)
    q_means, k_means = means(q, 6), means(k, 6)
    inverse = torch.linalg.pinv(weights(q_means, k_means))
    expected = weights(q, k_means) @ inverse @ weights(q_means, k) @ v
    torch.testing.assert_close(made(q, k, v), expected, rtol=1e-7, atol=1e-7)


def test_six_steps_are_the_papers():
    made = mechanism("nystrom", Heads(2, 4), landmarks=5)
    a = weights(*(torch.randn(1, 1, 5, 4).double() for _ in "ab"))
    z, one = a.mT / (a.sum(-2).max() * a.sum(-1).max()), torch.eye(5).double()
    for _ in range(6):
        z = z @ (13 * one - a @ z @ (15 * one - a @ z @ (7 * one - a @ z))) / 4
    torch.testing.assert_close(made._inverse(a), z, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("real", [(0, 40), (0, 29), (11, 40), (7, 9), (3, 31)])
def test_segments_divide_a_rows_own_length(real):
    x = torch.randn(2, 2, 40, 4).double()
    keep = torch.ones(2, 40, dtype=torch.bool)
    keep[0] = False
    keep[0, slice(*real)] = True
    averages, filled = segment_means(x, 6, keep)
    expected = means(x[:1, :, slice(*real)], 6)
    if filled is None:
        filled = torch.ones(2, 1, 1, 6, dtype=torch.bool)
    assert filled[0].sum() == expected.shape[2]
    torch.testing.assert_close(
        averages[:1][:, :, filled[0, 0, 0]], expected, rtol=1e-12, atol=1e-12
    )


def test_a_pad_between_has_no_part_in_a_mean():
    x = torch.randn(1, 1, 6, 1).double()
    keep = torch.tensor([[True, False, True, True, True, True]])
    averages, _ = segment_means(x, 3, keep)
    expected = torch.stack([x[0, 0, 0, 0], x[0, 0, 2:4].mean(), x[0, 0, 4:].mean()])
    torch.testing.assert_close(averages.flatten(), expected)


def test_the_residual_is_reported_to_an_open_log_and_falls():
    q, k, v = qkv(30)
    residuals = []
    for iterations in (2, 6, 24):
        made = mechanism("nystrom", Heads(2, 4), landmarks=6, iterations=iterations)
        made(q, k, v)
        with sparing.record(made) as log:
            made(q, k, v)
        assert [tuple(value.shape) for value in log["residual"]] == [(2, 2)]
        residuals.append(log["residual"][0].max().item())
    assert residuals[0] > residuals[1] > residuals[2]
    exact = mechanism("nystrom", Heads(2, 4), landmarks=6, pinv="exact")
    with sparing.record(exact) as log:
        exact(q, k, v)
    assert log["residual"][0].max().item() < 1e-8


def test_the_convolution_starts_at_zero_and_stays_inside_its_head():
    plain = mechanism("nystrom", Heads(2, 4), landmarks=6)
    made = mechanism("nystrom", Heads(2, 4), landmarks=6, conv_kernel=3).double()
    q, k, v = qkv(20)
    torch.testing.assert_close(made(q, k, v), plain(q, k, v), rtol=1e-12, atol=1e-12)
    with torch.no_grad():
        made.conv_weight[1] = torch.tensor([1.0, 0.0, 10.0])
    added = (made(q, k, v) - plain(q, k, v)).detach()
    expected = torch.zeros_like(v)
    expected[:, 1, 1:] += v[:, 1, :-1]
    expected[:, 1, :-1] += 10 * v[:, 1, 1:]
    torch.testing.assert_close(added, expected, rtol=1e-10, atol=1e-10)


def test_the_convolution_excludes_other_queries():
    made = mechanism("nystrom", Heads(2, 4), conv_kernel=3).double()
    with pytest.raises(Unsupported, match="cross"):
        made(*qkv(5, 9))


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"landmarks": 0}, "landmarks"),
        ({"iterations": 0}, "iterations"),
        ({"pinv": "exakt"}, "'exact'"),
        ({"conv_kernel": 4}, "odd"),
    ],
)
def test_impossible_options_are_refused(options, named):
    with pytest.raises(UsageError, match=named):
        mechanism("nystrom", Heads(2, 4), **options)
