"""Mechanisms that must equal each other in some setting, though they share no formula in code."""

from __future__ import annotations

import math

import pytest
import torch

from sparing import Heads, Mask, mechanism

HEADS = Heads(2, 8, tokens=64)


def build(name, **options):
    return mechanism(name, HEADS, **options).double().eval()


def streams(tokens=37, count=3):
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(2, 2, tokens, 8, generator=generator).double() for _ in range(count)]


def padded(tokens=37):
    keep = torch.ones(2, tokens, dtype=torch.bool)
    keep[0, 30:] = keep[1, :4] = False
    return Mask(keep)


def require_equal(output, expected, mask):
    real = torch.ones(2, 37).bool() if mask.keep is None else mask.keep
    real = real[:, None, :, None]
    torch.testing.assert_close(
        output.where(real, 0), expected.where(real, 0), rtol=1e-10, atol=1e-10
    )


@pytest.mark.parametrize("mask", [Mask(), padded()])
def test_kerformer_without_excitation_is_efficient_attention(mask):
    q, k, v = streams()
    kerformer = build("kerformer", axis="token", se="none", query_map="softmax")
    require_equal(kerformer(q, k, v, mask=mask), build("efficient")(q, k, v, mask=mask), mask)


def test_efficient_attention_ends_where_it_is_bidirectional():
    q, k, v = streams()
    made = build("efficient")
    last = made(q, k, v, mask=Mask(causal=True))[:, :, -1]
    torch.testing.assert_close(last, made(q, k, v)[:, :, -1], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("mask", [Mask(), padded(), Mask(causal=True)])
def test_one_gaussian_key_without_shift_is_probabilistic_attention(mask):
    q, k, v = streams()
    gaussian = build("gaussian_keys", components=1)
    with torch.no_grad():
        for parameter in gaussian.parameters():
            parameter.zero_()
    uniform = build("probabilistic", prior="uniform")
    require_equal(gaussian(q, k, v, mask=mask), uniform(q, k, v, mask=mask), mask)


def test_cosformer_on_a_long_ruler_is_relu_linear_attention():
    """With positions that hardly differ beside the length, every cosine is one."""
    q, k, v = streams()
    far = mechanism("cosformer", Heads(2, 8, tokens=10**9), length="fixed").double()
    weights = q.relu() @ k.relu().mT
    expected = (weights @ v / weights.sum(-1, keepdim=True)).nan_to_num(0)  # a row may see nothing
    torch.testing.assert_close(far(q, k, v), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("mask", [Mask(), padded()])
def test_kernel_of_dot_products_is_softmax(mask):
    q, k, v = streams()
    dot = build("kernel", kernel="dot")
    require_equal(dot(q, k, v, mask=mask), build("softmax")(q, k, v, mask=mask), mask)


def test_local_blocks_of_one_token_give_each_its_own_value():
    q, k, v = streams()
    torch.testing.assert_close(build("local", block=1)(q, k, v), v)
    assert math.isclose(float((build("none")(q, k, v) - v).abs().max()), 0.0)


def test_local_blocks_that_look_one_back_are_a_causal_window_at_each_blocks_end():
    """The last query of a block sees its block and the one before: 2 x block tokens."""
    q, k, v = streams()
    local = build("local", block=4, look_back=1)(q, k, v, mask=Mask(causal=True))
    window = build("window", radius=7)(q, k, v, mask=Mask(causal=True))
    ends = slice(3, None, 4)
    torch.testing.assert_close(local[:, :, ends], window[:, :, ends], rtol=1e-10, atol=1e-10)
