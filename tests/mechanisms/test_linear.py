"""elu + 1 attention: by hand, against its square form, and in parts against in one piece."""

from __future__ import annotations

import pytest
import torch

from sparing import Heads, Mask, mechanism
from sparing.mechanisms import _kernel
from sparing.mechanisms.linear import positive
from sparing.testing.entries.linear import dense_linear


def drawn(*shape, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(3, *shape, generator=generator, dtype=torch.float64).to(dtype).unbind()


def test_by_hand():
    q = torch.zeros(1, 1, 1, 2)
    k = torch.tensor([[0.0, 0.0], [1.0, -torch.log(torch.tensor(2.0))]])[None, None]
    v = torch.eye(2)[None, None]
    out = mechanism("linear", Heads(1, 2))(q, k, v)
    # features (1, 1) against (1, 1) and (2, 1/2): weights 2 and 2.5
    torch.testing.assert_close(out[0, 0, 0], torch.tensor([2 / 4.5, 2.5 / 4.5]))


@pytest.mark.parametrize("tokens", [1, 64, 65, 200])
def test_causal_equals_the_square_form(tokens):
    q, k, v = drawn(2, 3, tokens, 8)
    keep = torch.ones(2, tokens, dtype=torch.bool)
    keep[1, : tokens // 3] = False
    for mask in (Mask(causal=True), Mask(keep, causal=True)):
        out = mechanism("linear", Heads(3, 8))(q, k, v, mask=mask)
        torch.testing.assert_close(out, dense_linear(None, q, k, v, mask=mask))


@pytest.mark.parametrize("queries", [1, 5, 64, 130])
def test_fewer_queries_are_the_last_rows(queries):
    q, k, v = drawn(1, 2, 150, 8)
    made = mechanism("linear", Heads(2, 8))
    whole = made(q, k, v, mask=Mask(causal=True))
    last = made(q[:, :, -queries:], k, v, mask=Mask(causal=True))
    torch.testing.assert_close(last, whole[:, :, -queries:])


def test_small_features_keep_their_digits():
    x = torch.linspace(-39, 5, 1000, dtype=torch.float64)
    exact = torch.where(x > 0, x + 1, x.exp())
    assert ((positive(x.float()).double() / exact - 1).abs() < 1e-5).all()
    torch.testing.assert_close(positive(x), torch.nn.functional.elu(x) + 1)


def test_slope_at_zero_is_one():
    x = torch.tensor([-1.0, 0.0, 1.0], dtype=torch.float64, requires_grad=True)
    positive(x).sum().backward()
    torch.testing.assert_close(x.grad, torch.tensor([-1.0, 0.0, 0.0], dtype=torch.float64).exp())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_denominator_never_underflows(dtype):
    q, k, v = drawn(1, 1, 70, 8, dtype=dtype)
    made = mechanism("linear", Heads(1, 8))
    out = made(q * 0 - 1000, k * 0 - 1000, v, mask=Mask(causal=True))
    torch.testing.assert_close(out[:, :, -1], v.float().mean(2).to(dtype), atol=1e-2, rtol=1e-2)


@pytest.mark.parametrize("rows", [1, 2, 4, 9])
@pytest.mark.parametrize("causal", [False, True])
def test_groups_of_rows_equal_one_piece(monkeypatch, rows, causal):
    q, k, v = drawn(3, 4, 33, 8)
    keep = torch.ones(3, 33, dtype=torch.bool)
    keep[1, 20:] = keep[2, :5] = False
    made, mask = mechanism("linear", Heads(4, 8)), Mask(keep, causal)
    whole = made(q.clone().requires_grad_(), k, v, mask=mask)
    calls = []
    monkeypatch.setattr(_kernel, "rows_at_once", lambda tokens, dim: calls.append(tokens) or rows)
    torch.testing.assert_close(made(q, k, v, mask=mask), whole)
    assert calls == [33]


def test_memory_layout_follows_the_queries():
    q, k, v = (t.transpose(1, 2) for t in drawn(2, 33, 4, 8))
    made = mechanism("linear", Heads(4, 8))
    out = made(q, k, v)
    assert out.stride() == q.stride()
    torch.testing.assert_close(out, made(q.contiguous(), k.contiguous(), v.contiguous()))
