"""Kerformer: by hand, against its square form under each option, and its relatives."""

from __future__ import annotations

import math

import pytest
import torch

from sparing import Heads, Mask, Unsupported, UsageError, mechanism
from sparing.mechanisms import _kernel
from sparing.testing.entries.kerformer import dense_kerformer

OPTIONS = [
    {},
    {"se": "fixed"},
    {"se": "none"},
    {"axis": "token", "se": "fixed"},
    {"axis": "token", "se": "none"},
    {"query_map": "softmax", "temperature": 0.5},
    {"query_map": "none"},
    {"se": "fixed", "key_map": "none"},
    {"se": "none", "query_map": "none", "key_map": "none"},
]


def built(tokens=40, **options):
    """A kerformer whose excitation is far from its mild start."""
    made = mechanism("kerformer", Heads(2, 8, tokens=tokens), **options).double()
    with torch.no_grad():
        for number, parameter in enumerate(made.parameters()):
            generator = torch.Generator().manual_seed(number)
            parameter.add_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return made


def drawn(tokens=40, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(3, 2, 2, tokens, 8, generator=generator, dtype=torch.float64).unbind()


def test_by_hand():
    q = torch.tensor([0.0, math.log(3)])[None, None, None]
    k = torch.tensor([[0.0, 0.0], [math.log(4), 0.0]])[None, None]
    out = mechanism("kerformer", Heads(1, 2), se="none")(q, k, torch.eye(2)[None, None])
    # queries (1/2, 3/4) against (1/2, 1/2) and (4/5, 1/5): weights 0.625 and 0.55
    torch.testing.assert_close(out[0, 0, 0], torch.tensor([0.625, 0.55]) / 1.175)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_equals_the_square_form(options):
    made = built(**options)
    keep = torch.ones(2, 40, dtype=torch.bool)
    keep[0, 33:] = keep[1, :7] = keep[1, 20:23] = False
    for causal in (False, True) if made.traits.causal else (False,):
        for mask in (Mask(causal=causal), Mask(keep, causal)):
            output, expected = made(*drawn(), mask=mask), dense_kerformer(made, *drawn(), mask=mask)
            real = torch.ones(2, 40).bool() if mask.keep is None else keep
            real = real[:, None, :, None].expand_as(output)
            torch.testing.assert_close(output[real], expected[real])


def test_token_axis_with_softmax_queries_is_efficient_attention():
    q, k, v = drawn()
    expected = q.softmax(-1) @ (k.softmax(-2).transpose(-1, -2) @ v)
    output = built(axis="token", se="none", query_map="softmax")(q, k, v)
    torch.testing.assert_close(output, expected)


@pytest.mark.parametrize("options", [{}, {"se": "fixed"}, {"axis": "token", "se": "fixed"}])
def test_starts_close_to_no_reweighting(options):
    heads = Heads(2, 8, tokens=40)
    started = mechanism("kerformer", heads, **options).double()
    plain = mechanism("kerformer", heads, **{**options, "se": "none"}).double()
    torch.testing.assert_close(started(*drawn()), plain(*drawn()), atol=3e-2, rtol=0)
    assert started.bias.sigmoid().min() > 0.85


def test_fixed_weights_belong_to_positions_and_content_weights_to_keys():
    q, k, v = drawn()
    order = torch.randperm(40, generator=torch.Generator().manual_seed(1))
    for se, same in (("content", True), ("fixed", False)):
        made = built(se=se)
        gap = (made(q, k, v) - made(q, k[:, :, order], v[:, :, order])).abs().max()
        assert (gap < 1e-12) == same


@pytest.mark.parametrize(("dim", "reduction", "hidden"), [(64, 8, 8), (64, 16, 4), (64, 64, 4)])
def test_squeeze_is_never_narrower_than_four(dim, reduction, hidden):
    made = mechanism("kerformer", Heads(2, dim), reduction=reduction)
    assert made.squeeze.shape == (hidden, dim)


@pytest.mark.parametrize("query", [-1000.0, 0.0, 1000.0])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_rows_sum_to_one_for_any_query(query, dtype):
    q, k, _ = (tensor.to(dtype) for tensor in drawn())
    out = mechanism("kerformer", Heads(2, 8))(torch.full_like(q, query), k, torch.ones_like(k))
    torch.testing.assert_close(out, torch.ones_like(out), atol=1e-3, rtol=0)


@pytest.mark.parametrize("causal", [False, True])
def test_parameters_learn_from_inputs_that_do_not(monkeypatch, causal):
    monkeypatch.setattr(_kernel, "rows_at_once", lambda tokens, dim: 1)
    gradients = []
    for recorded in (False, True):
        made = built()
        q, k, v = (tensor.requires_grad_(recorded) for tensor in drawn())
        made(q, k, v, mask=Mask(causal=causal)).square().sum().backward()
        gradients.append([parameter.grad for parameter in made.parameters()])
    for parts, whole in zip(*gradients, strict=True):
        assert whole.abs().max() > 0
        torch.testing.assert_close(parts, whole)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"se": "squeeze"}, UsageError, "one of content, fixed, none"),
        ({"axis": "features"}, UsageError, "one of feature, token"),
        ({"query_map": "relu"}, UsageError, "one of sigmoid, softmax, none"),
        ({"key_map": "sigmoid"}, UsageError, "one of softmax, none"),
        ({"axis": "token", "se": "none", "key_map": "none"}, UsageError, "has no axis"),
        ({"se": "fixed"}, UsageError, "Heads"),
        ({"axis": "token"}, Unsupported, "se='content'"),
        ({"reduction": 0}, UsageError, "reduction"),
        ({"temperature": 0.0}, UsageError, "temperature"),
    ],
)
def test_options_that_cannot_be(options, error, message):
    with pytest.raises(error, match=message):
        mechanism("kerformer", Heads(2, 8), **options)


def test_longer_than_the_positions_is_refused():
    with pytest.raises(Unsupported, match="40 tokens; got 41"):
        built(se="fixed")(*drawn(41))


def test_token_axis_refuses_causality():
    with pytest.raises(Unsupported, match="causal"):
        built(axis="token", se="none")(*drawn(), mask=Mask(causal=True))


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("query_map", ["sigmoid", "softmax"])
def test_large_inputs_leave_no_denominator_at_zero(query_map, sign):
    q, k = torch.tensor([[0.0, 200.0]]), torch.tensor([[200.0, 0.0], [300.0, 0.0]])
    made = mechanism("kerformer", Heads(1, 2), query_map=query_map)
    rows = made(sign * q[None, None], k[None, None], torch.ones(1, 1, 2, 2))
    torch.testing.assert_close(rows, torch.ones_like(rows))
