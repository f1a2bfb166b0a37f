"""Efficient attention: by hand, its causal form against explicit weights, and its range."""

from __future__ import annotations

import math

import pytest
import torch

from sparing import Heads, Mask, UsageError, mechanism
from sparing.mechanisms import _kernel
from sparing.testing.entries.efficient import dense_efficient
from sparing.testing.mathematics import _LargestTensor

CAUSAL = Mask(causal=True)


def built(dim=8, **options):
    return mechanism("efficient", Heads(2, dim), **options)


def drawn(tokens=40, *, batch=1, dim=8, keys=1.0, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    q, k, v = torch.randn(3, batch, 2, tokens, dim, generator=generator, dtype=torch.float64)
    return [tensor.to(dtype) for tensor in (q, k * keys, v)]


def explicit(q, k, v):
    """The causal form with a weight for each query, key and feature."""
    tokens = k.shape[2]
    future = torch.ones(tokens, tokens, dtype=torch.bool).triu(1)[..., None]
    shares = k[:, :, None].masked_fill(future, -torch.inf).softmax(3)
    return torch.einsum("bhic,bhijc,bhje->bhie", q.softmax(-1), shares, v)


def test_by_hand():
    q = torch.tensor([0.0, math.log(3)])[None, None, None]
    k = torch.tensor([[0.0, 0.0], [math.log(3), 0.0]])[None, None]
    out = mechanism("efficient", Heads(1, 2))(q, k, torch.eye(2)[None, None])
    # queries (1/4, 3/4); over the tokens the keys are (1/4, 3/4) and (1/2, 1/2)
    torch.testing.assert_close(out[0, 0, 0], torch.tensor([1 / 16 + 3 / 8, 3 / 16 + 3 / 8]))


def test_equals_kerformer_in_one_setting():
    q, k, v = drawn(batch=2)
    keep = torch.ones(2, 40, dtype=torch.bool)
    keep[1, :9] = keep[1, 30:] = False
    options = {"se": "none", "axis": "token", "query_map": "softmax"}
    for mask in (Mask(), Mask(keep)):
        expected = mechanism("kerformer", Heads(2, 8), **options)(q, k, v, mask=mask)
        torch.testing.assert_close(built()(q, k, v, mask=mask), expected)


@pytest.mark.parametrize("tokens", [1, 63, 64, 65, 130, 200])
def test_causal_equals_the_explicit_weights(tokens):
    q, k, v = drawn(tokens, batch=2, keys=3.0)
    torch.testing.assert_close(built()(q, k, v, mask=CAUSAL), explicit(q, k, v))
    keep = torch.ones(2, tokens, dtype=torch.bool)
    keep[1, : tokens // 3] = False
    mask = Mask(keep, causal=True)
    output = built()(q, k, v, mask=mask)
    torch.testing.assert_close(output, dense_efficient(built(), q, k, v, mask=mask))


@pytest.mark.parametrize("options", [{}, {"normalisation": "scaling"}], ids=str)
@pytest.mark.parametrize("tokens", [1, 64, 100])
def test_causal_equals_bidirectional_at_the_last_token(tokens, options):
    made = built(**options)
    keep = torch.ones(2, tokens, dtype=torch.bool)
    keep[1, : tokens // 4] = False
    for mask in (Mask(), Mask(keep)):
        whole = made(*drawn(tokens, batch=2), mask=mask)
        past = made(*drawn(tokens, batch=2), mask=Mask(mask.keep, causal=True))
        torch.testing.assert_close(past[:, :, -1], whole[:, :, -1])


def test_one_denominator_for_all_features_is_another_mechanism():
    q, k, v = drawn()
    weights = q.softmax(-1) @ k.exp().transpose(-1, -2)
    other = weights @ v / weights.sum(-1, keepdim=True)
    assert (built()(q, k, v, mask=CAUSAL) - other)[:, :, -1].abs().max() > 0.01


@pytest.mark.parametrize("spread", [1.0, 10.0, 20.0])
def test_single_precision_holds_keys_far_apart(spread):
    exact = [tensor.requires_grad_() for tensor in drawn(150, keys=spread)]
    single = [tensor.detach().float().requires_grad_() for tensor in exact]
    expected, output = explicit(*exact), built()(*single, mask=CAUSAL)
    torch.testing.assert_close(output.double(), expected, atol=1e-4, rtol=1e-4)
    without = built()(*(tensor.detach() for tensor in single), mask=CAUSAL)
    torch.testing.assert_close(without, output.detach(), atol=1e-4, rtol=1e-4)
    weights = torch.randn(expected.shape, generator=torch.Generator().manual_seed(1)).double()
    gradients = torch.autograd.grad((expected * weights).sum(), exact)
    output_gradients = torch.autograd.grad((output * weights.float()).sum(), single)
    for gradient, expected_gradient in zip(output_gradients, gradients, strict=True):
        bound = 1e-4 * expected_gradient.abs().max().item()
        torch.testing.assert_close(gradient.double(), expected_gradient, atol=bound, rtol=1e-3)


def test_beyond_the_range_everything_stays_finite():
    q, k, v = (tensor.requires_grad_() for tensor in drawn(150, keys=300.0, dtype=torch.float32))
    out = built()(q, k, v, mask=CAUSAL)
    out.square().sum().backward()
    assert all(torch.isfinite(tensor).all() for tensor in (out, q.grad, k.grad, v.grad))


@pytest.mark.parametrize("rise", [3.0, 40.0, 100.0])
def test_a_loud_future_leaves_the_past_alone_in_single_precision(rise):
    q, k, v = drawn(150, dtype=torch.float32)
    before = built()(q, k, v, mask=CAUSAL)
    k[:, :, 70:] += rise
    v[:, :, 70:] *= 50
    after = built()(q, k, v, mask=CAUSAL)
    torch.testing.assert_close(after[:, :, :70], before[:, :, :70], atol=2e-5, rtol=1e-4)
    assert (after - before)[:, :, 70:].abs().max() > 1


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shift", [-300.0, 300.0])
def test_only_differences_between_keys_count(shift, causal):
    """Nothing that fills a block or a pad may serve as the reference."""
    q, k, v = drawn(100, batch=2, dtype=torch.float32)
    keep = torch.ones(2, 100, dtype=torch.bool)
    keep[1, :70] = False
    for mask in (Mask(causal=causal), Mask(keep, causal)):
        expected = built()(q, k, v, mask=mask)
        output = built()(q, k + shift, v, mask=mask)
        torch.testing.assert_close(output, expected, atol=1e-3, rtol=1e-3)


def test_early_keys_far_below_are_not_lost_between_blocks():
    """What one reference for all tokens would let vanish: quiet blocks before a loud one."""
    q, k, v = drawn(192, dtype=torch.float32)
    k += torch.tensor([-90.0, 0.0, 90.0]).repeat_interleave(64)[:, None]
    output = built()(q, k, v, mask=CAUSAL)
    expected = explicit(q.double(), k.double(), v.double())
    torch.testing.assert_close(output.double(), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("options", [{}, {"normalisation": "scaling"}], ids=str)
def test_causal_builds_no_state_for_each_token(options):
    tokens, dim = 1024, 32
    tensors = drawn(tokens, dim=dim)
    with torch.no_grad(), _LargestTensor() as largest:
        built(dim, **options)(*tensors, mask=CAUSAL)
    assert largest.elements <= 2 * tokens * max(dim, 64)


def test_scaling_is_dot_product_attention_divided_by_the_count():
    q, k, v = drawn(batch=2)
    made = built(normalisation="scaling")
    expected = (q @ k.transpose(-1, -2) / 40) @ v
    torch.testing.assert_close(made(q, k, v), expected)
    keep = torch.arange(40) < torch.tensor([[40], [11]])
    short = made(q, k, v, mask=Mask(keep))[1, :, :11]
    torch.testing.assert_close(short, made(*(t[1:, :, :11] for t in (q, k, v)))[0])


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("options", [{}, {"normalisation": "scaling"}], ids=str)
def test_groups_of_rows_equal_one_piece(monkeypatch, options, causal):
    q, k, v = drawn(33, batch=3)
    keep = torch.ones(3, 33, dtype=torch.bool)
    keep[1, 20:] = keep[2, :5] = False
    made, mask = built(**options), Mask(keep, causal)
    whole = made(q.clone().requires_grad_(), k, v, mask=mask)
    monkeypatch.setattr(_kernel, "rows_at_once", lambda tokens, dim: 1)
    torch.testing.assert_close(made(q, k, v, mask=mask), whole)


def test_memory_layout_follows_the_queries():
    q, k, v = (tensor.transpose(1, 2).contiguous().transpose(1, 2) for tensor in drawn())
    out = built()(q, k, v)
    assert out.stride() == q.stride()
    torch.testing.assert_close(out, built()(*drawn()))


def test_an_option_that_cannot_be():
    with pytest.raises(UsageError, match="one of softmax, scaling"):
        built(normalisation="layer")


@pytest.mark.parametrize("scale", [50, 1000])
@pytest.mark.parametrize("rise", [-30, 0, 30])
@pytest.mark.parametrize("tokens", [17, 150])
def test_causal_is_right_for_keys_of_any_spread(scale, rise, tokens):
    q, k, v = drawn(tokens, batch=2, keys=scale)
    k = k + torch.linspace(0, rise * scale, tokens, dtype=k.dtype)[:, None]
    keep = torch.ones(2, tokens, dtype=torch.bool)
    keep[0, :5] = keep[1, 9:12] = False
    hidden = k.masked_fill(~keep[:, None, :, None], -1e300)
    expected = explicit(q, hidden, v).where(keep[:, None, :, None], 0)
    for dtype, bound in ((torch.float32, 1e-5), (torch.float64, 1e-12)):
        streams = [stream.to(dtype) for stream in (q, k, v)]
        answer = built()(*streams, mask=CAUSAL).double()
        exact = explicit(q, streams[1].double(), v)
        assert (answer - exact).norm() < bound * exact.norm()
        padded = built()(*streams, mask=Mask(keep, causal=True)).double()
        padded = padded.where(keep[:, None, :, None], 0)
        if dtype == torch.float64:
            assert (padded - expected).norm() < bound * expected.norm()


def test_gradients_are_right_for_keys_of_any_spread():
    streams = [stream.requires_grad_() for stream in drawn(20, keys=600.0)]
    weights = torch.randn(1, 2, 20, 8, dtype=torch.float64)
    answers = (built()(*streams, mask=CAUSAL), explicit(*streams))
    slopes = [torch.autograd.grad((answer * weights).sum(), streams) for answer in answers]
    torch.testing.assert_close(*slopes, rtol=1e-9, atol=1e-9)


def test_a_graph_shows_what_it_cannot_hold_as_nan():
    q, k, v = drawn(20, dtype=torch.float32)
    k[..., 9, 3] = 200.0
    rows = torch.vmap(lambda *row: built()(*(part[None] for part in row), mask=CAUSAL)[0])
    answer, exact = rows(q, k, v), built()(q, k, v, mask=CAUSAL)
    lost = answer.isnan().any(-1)
    assert lost[..., :9].all()
    assert not lost[..., 9:].any()
    torch.testing.assert_close(answer[..., 9:, :], exact[..., 9:, :])
