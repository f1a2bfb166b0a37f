"""LISA against dense attention over codewords, its limit, and how it learns."""

from __future__ import annotations

import pytest
import torch

from sparing import Heads, Mask, UsageError, Workload, mechanism
from sparing.layers.attention import Attention
from sparing.testing.entries.lisa import dense_lisa


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


def build(**options):
    return mechanism("lisa", Heads(2, 4, width=6), **options).double().eval()


def drawn(batch, tokens):
    return (
        torch.zeros(batch, 2, tokens, 4, dtype=torch.float64),
        torch.randn(batch, tokens, 6, dtype=torch.float64),
    )


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("tokens", [1, 3, 200])
def test_equals_dense_attention_over_codewords_with_and_without_gradients(causal, tokens):
    made = build(books=3, codewords=16)
    keep = torch.rand(2, tokens, generator=torch.Generator().manual_seed(2)) > 0.3
    keep[:, -1] = True
    q, x = drawn(2, tokens)
    for mask in (Mask(causal=causal), Mask(keep, causal)):
        expected = dense_lisa(made, q, x, mask=mask)
        with torch.no_grad():
            looked_up = made(q, x, mask=mask)
        for output in (looked_up, made(q, x, mask=mask)):
            if mask.keep is not None:
                real = mask.keep[:, None, :, None]
                output, expected = output.where(real, 0), expected.where(real, 0)
            torch.testing.assert_close(output, expected, rtol=1e-10, atol=1e-10)


def test_tokens_that_are_the_codewords_get_softmax_attention():
    layer = Attention(6, 2, "lisa", books=1, codewords=20).double()
    layer.q_projection.bias.data.normal_()
    layer.v_projection.bias.data.normal_()
    made = layer.mechanism
    made.init_from(layer._weights())
    words = torch.nn.functional.normalize(torch.randn(20, 6), dim=-1).bfloat16().double()
    made.codebooks.data.copy_(words[None])
    layer.k_projection.bias.data.zero_()
    made.biases.data[1] = 0
    x = words[torch.randperm(20)][None]
    dense = Attention(6, 2, "softmax").double()
    dense.load_state_dict(layer.state_dict(), strict=False)
    torch.testing.assert_close(layer(x), dense(x))


def test_values_share_the_bias_of_the_layer_among_the_books():
    layer = Attention(8, 2, "lisa", books=4)
    layer.v_projection.weight.data.zero_()
    layer.v_projection.bias.data.fill_(3.0)
    layer.mechanism.init_from(layer._weights())
    mixed = layer.mechanism(torch.zeros(1, 2, 5, 4), torch.randn(1, 5, 8))
    torch.testing.assert_close(mixed, torch.full_like(mixed, 3.0))


def test_codes_are_learned_straight_through():
    made = build(books=1, codewords=4)
    q, x = drawn(1, 12)
    x.requires_grad_()
    gradients = torch.autograd.grad(made(q, x).square().sum(), [x, *made.parameters()])
    for gradient in gradients:
        assert bool(torch.isfinite(gradient).all())
        assert gradient.abs().max() > 0


def test_a_codeword_never_seen_does_not_matter_however_well_it_fits():
    made = build(books=1, codewords=3)
    with torch.no_grad():
        made.codebooks.copy_(torch.eye(3, 6).mul(4)[None])
        made.projections.copy_(torch.eye(8, 6).expand(3, -1, -1))
        made.projections[1, :, 2] = 1e4
    x = torch.zeros(1, 7, 6, dtype=torch.float64)
    x[:, ::2, 0] = x[:, 1::2, 1] = 1
    q = torch.zeros(1, 2, 7, 4, dtype=torch.float64)
    output = made(q, x.requires_grad_())
    torch.testing.assert_close(output, dense_lisa(made, q, x, mask=Mask()))
    assert bool(torch.isfinite(torch.autograd.grad(output.sum(), x)[0]).all())


def test_similarity_is_not_the_sum_of_coordinates():
    """The authors' Euclidean similarity adds up a token's coordinates: its direction is lost."""
    made = build(books=1, codewords=2)
    with torch.no_grad():
        made.codebooks.copy_(torch.tensor([[1.0, -1, 0, 0, 0, 0], [-1.0, 1, 0, 0, 0, 0]])[None])
    codes = made._codes(made.codebooks[0][None].detach())
    torch.testing.assert_close(codes.detach(), torch.eye(2, dtype=torch.float64).view(1, 2, 1, 2))


def test_cost_grows_with_the_tokens():
    made = mechanism("lisa", Heads(2, 4))
    first, second, third = (
        made.cost(Workload(1, 2, tokens, tokens, 4)).matmul_flops for tokens in (500, 1000, 1500)
    )
    assert third - second == second - first > 0


@pytest.mark.parametrize("wrong", [{"books": 0}, {"codewords": 0}, {"temperature": 0.0}], ids=str)
def test_wrong_options_are_named(wrong):
    with pytest.raises(UsageError, match=next(iter(wrong))):
        build(**wrong)


def test_the_last_queries_of_a_causal_row_are_those_of_the_whole():
    made = build()
    q, x = drawn(2, 5)
    whole = made(q, x, mask=Mask(causal=True))
    last = made(q[:, :, -2:], x, mask=Mask(causal=True))
    torch.testing.assert_close(last, whole[:, :, -2:])
