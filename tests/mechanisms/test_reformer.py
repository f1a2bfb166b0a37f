"""Reformer against its slow form at chunk borders, its limits, and what must not matter."""

from __future__ import annotations

import pytest
import torch

from sparing import Heads, Mask, Unsupported, UsageError, mechanism
from sparing.testing.entries.reformer import dense_shared, slow_reformer

MODES = (
    {},
    {"same_bucket": True},
    {"count_once": True},
    {"same_bucket": True, "count_once": True},
)


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


def build(**options):
    return mechanism("reformer", Heads(2, 4), **options).double().eval()


def drawn(batch, tokens):
    return [torch.randn(batch, 2, tokens, 4, dtype=torch.float64) for _ in "qv"]


def ragged(batch, tokens):
    """Rows with pads left, right and between."""
    keep = torch.ones(batch, tokens, dtype=torch.bool)
    keep[0, tokens // 2 :] = False
    keep[1, : tokens // 3] = False
    keep[2] = torch.rand(tokens, generator=torch.Generator().manual_seed(1)) > 0.4
    return keep


@pytest.mark.parametrize("options", MODES)
@pytest.mark.parametrize("tokens", [1, 2, 15, 16, 17, 31, 33, 64, 131])
def test_equals_its_slow_form_at_the_borders_of_chunks(options, tokens):
    made = build(chunk=16, buckets=6, rounds=3, **options)
    q, v = drawn(1, tokens)
    expected = slow_reformer(made, q, v, mask=Mask())
    torch.testing.assert_close(made(q, v), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("options", MODES)
def test_padded_rows_equal_the_slow_form_with_and_without_gradients(options):
    made = build(chunk=8, rounds=2, **options)
    (q, v), mask = drawn(3, 75), Mask(ragged(3, 75))
    real = mask.keep[:, None, :, None]
    expected = slow_reformer(made, q, v, mask=mask)
    for recorded in (False, True):
        output = made(q.requires_grad_(recorded), v, mask=mask).detach()
        torch.testing.assert_close(output.where(real, 0), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("options", MODES)
def test_gradients_are_true_through_several_chunks(options):
    made = build(chunk=4, buckets=4, rounds=2, **options)
    leaves = [tensor.requires_grad_() for tensor in drawn(1, 11)]
    assert torch.autograd.gradcheck(lambda q, v: made(q, v), leaves, fast_mode=True)


def test_a_short_row_keeps_its_own_number_of_buckets_beside_a_long_one():
    made = build(chunk=4)
    q, v = drawn(2, 200)
    keep = torch.ones(2, 200, dtype=torch.bool)
    keep[0, 20:] = False
    output = made(q, v, mask=Mask(keep))
    torch.testing.assert_close(output[:1, :, :20], made(q[:1, :, :20], v[:1, :, :20]))
    fewer = build(chunk=4, buckets=6)
    assert not torch.allclose(fewer(q, v), made(q, v))


@pytest.mark.parametrize("count_once", [False, True])
def test_two_chunks_see_everything_whatever_the_hashes(count_once):
    made = build(chunk=8, count_once=count_once)
    q, v = drawn(2, 16)
    torch.testing.assert_close(made(q, v), dense_shared(made, q, v, mask=Mask()))


def test_a_token_sees_itself_only_when_it_is_alone():
    made = build(chunk=4)
    q, v = drawn(1, 30)
    v.requires_grad_()
    gradient = torch.autograd.grad(made(q, v)[0, 0, 7].sum(), v)[0][0, 0, 7]
    assert torch.equal(gradient, torch.zeros_like(gradient))
    torch.testing.assert_close(made(q[:, :, :1], v[:, :, :1]), v[:, :, :1])


def test_tokens_alone_in_all_their_buckets_keep_their_own_value():
    made = mechanism("reformer", Heads(1, 2), chunk=1, buckets=4, rounds=1, same_bucket=True)
    made.rotations.copy_(torch.eye(2).view(1, 2, 1, 2))
    q = torch.tensor([[1.0, 0.1], [0.1, 1.0], [-1.0, 0.1], [0.1, -1.0]]).view(1, 1, 4, 2)
    v = torch.randn(1, 1, 4, 2)
    assert torch.equal(made(q, v), v)


def test_queries_of_zero_have_finite_gradients():
    made = build(chunk=4)
    q, v = drawn(1, 20)
    q[:, :, 5] = 0
    q.requires_grad_()
    gradient = torch.autograd.grad(made(q, v).square().sum(), q)[0]
    assert bool(torch.isfinite(gradient).all())
    assert gradient.abs().max() < 1e3


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_keeps_the_rotations(dtype):
    made = mechanism("reformer", Heads(12, 64))
    before = made.rotations.clone()
    assert torch.equal(made.to(dtype).rotations.float(), before)
    assert before.std().sub(1).abs() < 0.02


def test_large_queries_do_not_lose_all_weights():
    made = mechanism("reformer", Heads(2, 4), chunk=4)
    q, v = (tensor.float() for tensor in drawn(1, 50))
    output = made(q * 300, torch.ones_like(v))
    torch.testing.assert_close(output, torch.ones_like(v))


def test_nothing_random_with_one_bucket():
    assert not build(buckets=1).traits.random
    assert build(buckets=1).rotations.numel() == 0


def test_causality_is_refused():
    made = build()
    with pytest.raises(Unsupported, match="causal"):
        made(*drawn(1, 9), mask=Mask(causal=True))


@pytest.mark.parametrize(
    ("option", "value"),
    [("rounds", 0), ("chunk", 0), ("buckets", 0), ("buckets", 3), ("buckets", -2)],
)
def test_wrong_options_are_named(option, value):
    with pytest.raises(UsageError, match=option):
        build(**{option: value})
