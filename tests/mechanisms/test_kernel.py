"""Kernel self-attention: each kernel by hand, chunks against the whole, and two known traps."""

from __future__ import annotations

import math

import pytest
import torch

from sparing import Heads, Mask, UsageError, mechanism
from sparing.mechanisms import _pairs
from sparing.mechanisms.kernel import KERNELS
from sparing.testing.entries.kernel import dense_kernel
from sparing.testing.mathematics import _LargestTensor


def built(kernel, **options):
    return mechanism("kernel", Heads(2, 4), kernel=kernel, **options).double()


def drawn(queries, keys=None, batch=2, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return tuple(
        torch.randn(batch, 2, n, 4, generator=generator, dtype=torch.float64)
        for n in (queries, keys or queries, keys or queries)
    )


@pytest.mark.parametrize(
    ("kernel", "scores"),
    [
        ("dot", (2.0, -1.0)),
        ("gaussian", (math.exp(-1), math.exp(-8))),
        ("inverse_quadratic", (1 / 2, 1 / 9)),
        ("laplace", (-1.0, -4.0)),
        ("module", (-4.0, 0.0)),
    ],
)
def test_each_kernel_by_hand(kernel, scores):
    made = mechanism("kernel", Heads(1, 2), kernel=kernel, scale=1.0)
    q = torch.tensor([[1.0, 1.0]])[None, None]
    k = torch.tensor([[1.0, 2.0], [-1.0, -1.0]])[None, None]
    scores = (3.0, -2.0) if kernel == "dot" else scores
    output = made(q, k, torch.eye(2)[None, None])
    torch.testing.assert_close(output.flatten(), torch.tensor(scores).softmax(0))


def test_every_kernel_is_one_of_its_own():
    """In the authors' code the Laplace kernel is a comment: asking for it gives the dot product."""
    outs = [built(kernel)(*drawn(9)) for kernel in KERNELS]
    for index, one in enumerate(outs):
        for other in outs[:index]:
            assert (one - other).abs().max() > 1e-3


@pytest.mark.parametrize("kernel", ["gaussian", "inverse_quadratic"])
def test_the_sharpness_starts_at_one_and_comes_back_from_anywhere(kernel):
    """A relu, as the authors have it, gets no gradient once its number is below zero."""
    made = built(kernel)
    torch.testing.assert_close(torch.nn.functional.softplus(made.sharpness), torch.ones(2).double())
    with torch.no_grad():
        made.sharpness.fill_(-2.0)
    made(*drawn(9)).square().sum().backward()
    assert (made.sharpness.grad.abs() > 0).all()


def test_dot_is_softmax_and_scale_one_is_the_authors():
    q, k, v = drawn(11)
    softmax = mechanism("softmax", Heads(2, 4))
    assert built("dot").traits.exact
    assert not built("dot", scale=1.0).traits.exact
    torch.testing.assert_close(built("dot")(q, k, v), softmax(q, k, v))
    torch.testing.assert_close(built("dot", scale=1.0)(q, k, v), softmax(q * 2, k, v))


@pytest.mark.parametrize("held", [1, 40, 1000])
@pytest.mark.parametrize("kernel", ["gaussian", "laplace"])
def test_pieces_do_not_matter(monkeypatch, held, kernel):
    made = built(kernel)
    keep = torch.ones(3, 31, dtype=torch.bool)
    keep[0, 25:] = keep[1, :6] = keep[1, 14:17] = False
    keep[2] = False
    for queries, causal in ((31, False), (31, True), (5, True), (5, False)):
        for mask in (Mask(causal=causal), Mask(keep, causal)):
            streams = drawn(queries, 31, batch=3)
            monkeypatch.setattr(_pairs, "_HELD", held)
            output = made(*streams, mask=mask)
            monkeypatch.undo()
            expected = dense_kernel(made, *streams, mask=mask)
            real = mask.keep_queries(queries)
            if real is not None:
                output, expected = (t.where(real[:, None, :, None], 0) for t in (output, expected))
            torch.testing.assert_close(output, expected)


def test_a_long_row_never_stores_its_square():
    made = built("gaussian").float()
    q, k, v = (t.float() for t in drawn(3000, batch=1))
    with torch.no_grad(), _LargestTensor() as largest:
        made(q, k, v)
    assert largest.elements <= _pairs._HELD


@pytest.mark.parametrize("kernel", KERNELS)
def test_equal_and_far_tokens_stay_finite(kernel):
    made = built(kernel).float()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.fill_(1e4)
    x = torch.randn(1, 2, 20, 4, generator=torch.Generator().manual_seed(0)) * 100
    x = torch.cat([x, x], 2).requires_grad_()
    out = made(x, x, x)
    assert out.abs().max() <= x.abs().max() * (1 + 1e-6)
    out.square().sum().backward()
    assert torch.isfinite(x.grad).all()


@pytest.mark.parametrize("kernel", ["gaussian", "inverse_quadratic"])
def test_rounding_never_carries_a_bounded_kernel_out_of_its_bounds(kernel):
    made = built(kernel).float()
    with torch.no_grad():
        made.sharpness.fill_(1e4)
    x = torch.randn(1, 2, 50, 4, generator=torch.Generator().manual_seed(0)) * 100
    scores = made._scores(x, x, slice(None))
    assert scores.min() >= 0
    assert scores.max() <= 1


@pytest.mark.parametrize("options", [{"kernel": "cosine"}, {"scale": 0.0}, {"scale": math.inf}])
def test_options_that_cannot_be(options):
    with pytest.raises(UsageError, match=next(iter(options))):
        mechanism("kernel", Heads(2, 4), **options)
