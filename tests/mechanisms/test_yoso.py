"""YOSO: the chance of a collision, its sampled form, and gradients where the formula has none."""

from __future__ import annotations

import math

import pytest
import torch

from sparing import Heads, Mask, UsageError, Workload, mechanism
from sparing.testing.entries.yoso import dense_yoso


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


def build(**options):
    return mechanism("yoso", Heads(2, 8), **options).double().eval()


def drawn(batch, *tokens):
    return [torch.randn(batch, 2, count, 8, dtype=torch.float64) for count in tokens]


@pytest.mark.parametrize("bits", [1, 4, 9])
def test_the_chance_is_that_of_random_signs(bits):
    first, second = torch.randn(2, 8, dtype=torch.float64)
    second = second + 1.5 * first
    planes = torch.randn(40_000, 8, bits, dtype=torch.float64)
    share = ((first @ planes > 0) == (second @ planes > 0)).all(-1).double().mean()
    angle = torch.nn.functional.cosine_similarity(first, second, dim=0).acos()
    chance = (1 - angle / math.pi) ** bits
    assert abs(share - chance) < 4 * (chance * (1 - chance) / 40_000).sqrt()


def test_more_hashes_tend_to_the_expectation():
    q, k, v = drawn(1, 40, 40, 40)
    expected = build(bits=3)(q, k, v)
    gaps = {
        hashes: (build(expectation=False, bits=3, hashes=hashes)(q, k, v) - expected)
        .square()
        .mean()
        .sqrt()
        .item()
        for hashes in (16, 256, 4096)
    }
    assert 2.5 < gaps[16] / gaps[256] < 6.5
    assert 2.5 < gaps[256] / gaps[4096] < 6.5


@pytest.mark.parametrize("hashes", [1, 8, 19])
def test_the_sampled_form_compares_hash_codes(hashes):
    made = build(expectation=False, bits=2, hashes=hashes)
    q, k, v = drawn(2, 11, 70, 70)
    keep = torch.rand(2, 70, generator=torch.Generator().manual_seed(0)) > 0.3
    mask = Mask(keep)
    torch.testing.assert_close(made(q, k, v, mask=mask), dense_yoso(made, q, k, v, mask=mask))


def test_queries_are_hashed_as_queries():
    made = build(expectation=False, bits=3)
    q, k, v = drawn(1, 30, 30, 30)
    assert not torch.allclose(made(q, k, v), made(k, k, v))


def test_equal_and_opposite_tokens_have_finite_gradients():
    made = build()
    q, _, v = drawn(1, 6, 6, 6)
    k = torch.cat([q[:, :, :3], -q[:, :, 3:]], 2)
    leaves = [tensor.requires_grad_() for tensor in (q, k, v)]
    for gradient in torch.autograd.grad(made(*leaves).sum(), leaves):
        assert bool(torch.isfinite(gradient).all())


def test_values_of_keys_that_are_nearly_opposite_are_not_lost_in_single_precision():
    made = build().float()
    q = torch.randn(1, 2, 1, 8)
    v = torch.randn(1, 2, 1, 8)
    expected = torch.nn.functional.normalize(v, dim=-1)
    torch.testing.assert_close(made(q, -q, v), expected)


def test_the_sampled_form_learns_by_the_slope_of_the_expectation():
    """Held against the formula written out as a square; 300 queries are more than one block."""
    made = build(expectation=False, bits=4, hashes=6)
    q, k, v = (tensor.requires_grad_() for tensor in drawn(1, 300, 20, 20))
    slopes = torch.randn(1, 2, 300, 8, dtype=torch.float64)
    gradients = torch.autograd.grad((made(q, k, v) * slopes).sum(), (q, k, v))

    unit_q, unit_k = (torch.nn.functional.normalize(tensor, dim=-1) for tensor in (q, k))
    cosines = unit_q @ unit_k.mT
    chances = (1 - cosines.acos() / math.pi) ** 4
    sampled = torch.stack(
        [
            ((unit_q[:, head] @ planes > 0)[:, :, None] == (unit_k[:, head] @ planes > 0)[:, None])
            .all(-1)
            .double()
            for head in range(2)
            for planes in made.planes[head]
        ]
    )
    shares = sampled.view(2, 6, 300, 20).mean(1)[None]
    slope = (chances * 2).detach() * (cosines - cosines.detach())
    mixed = torch.nn.functional.normalize((shares + slope) @ v, dim=-1)
    expected = torch.autograd.grad((mixed * slopes).sum(), (q, k, v))
    for gradient, other in zip(gradients, expected, strict=True):
        torch.testing.assert_close(gradient, other, rtol=1e-9, atol=1e-9)


def test_the_sampled_form_grows_with_the_tokens():
    made = build(expectation=False)
    once, twice = (
        made.cost(Workload(1, 2, tokens, tokens, 8)).matmul_flops for tokens in (500, 1000)
    )
    assert twice == 2 * once


def test_the_convolution_starts_without_a_part():
    q, k, v = drawn(1, 12, 12, 12)
    assert torch.equal(build(conv_kernel=3)(q, k, v), build()(q, k, v))


@pytest.mark.parametrize("option", ["bits", "hashes", "conv_kernel"])
@pytest.mark.parametrize("value", [0, -2])
def test_wrong_options_are_named(option, value):
    with pytest.raises(UsageError, match=option):
        build(**{option: value})
