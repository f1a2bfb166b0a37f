"""Gradients by hand beside those that PyTorch derives."""

from __future__ import annotations

import pytest
import torch

from sparing.mechanisms import _kernel, _recorded

WEIGHTS = [None, (2, 1, 7), (2, 3, 7)]


def made(weights):
    generator = torch.Generator().manual_seed(0)

    def drawn(*shape):
        return torch.rand(shape, generator=generator, dtype=torch.float64).requires_grad_()

    return [
        drawn(2, 3, 5, 4),
        drawn(2, 3, 7, 4),
        drawn(2, 3, 7, 6),
        None if weights is None else drawn(*weights),
    ]


@pytest.mark.parametrize("weights", WEIGHTS, ids=str)
def test_attention_has_the_derived_gradients(weights, monkeypatch):
    streams = made(weights)
    learned = [stream for stream in streams if stream is not None]
    slopes = torch.randn(2, 3, 5, 6, dtype=torch.float64)
    results = []
    for by_hand in (_recorded.by_hand, lambda *_: False):
        monkeypatch.setattr(_kernel, "by_hand", by_hand)
        mixed = _kernel.attend(*streams)
        assert ("Attend" in str(mixed.grad_fn)) == (by_hand is _recorded.by_hand)
        results.append([mixed, *torch.autograd.grad(mixed, learned, slopes)])
    torch.testing.assert_close(*results, rtol=1e-12, atol=1e-12)


def test_attention_passes_gradcheck_where_some_inputs_need_none():
    streams = made((2, 1, 7))
    assert torch.autograd.gradcheck(_kernel.attend, streams)
    streams[3] = streams[3].detach()
    assert torch.autograd.gradcheck(_kernel.attend, streams)
    assert torch.autograd.gradcheck(lambda v: _kernel.attend(*streams[:2], v), streams[2])


def test_a_query_without_weights_has_finite_gradients():
    streams = made(None)
    with torch.no_grad():
        streams[0][0, 0, 0] = 0
    mixed = _kernel.attend(*streams)
    assert (mixed[0, 0, 0] == 0).all()
    for gradient in torch.autograd.grad(mixed[1:].sum() + mixed[0, 1:].sum(), streams[:3]):
        assert gradient.isfinite().all()


def test_maps_have_the_derived_gradients():
    x = torch.linspace(-50, 50, 401, dtype=torch.float64).requires_grad_()
    by_hand = torch.autograd.grad(_kernel.positive(x).sum(), x)[0]
    derived = torch.autograd.grad(_kernel._positive(x).sum(), x)[0]
    off_corners = (x != 0) & (x != -40)
    torch.testing.assert_close(by_hand[off_corners], derived[off_corners], rtol=0, atol=5e-18)
    assert by_hand[x == 0] == 1


def test_not_where_another_path_is_better():
    x = torch.ones(2, requires_grad=True)
    assert _recorded.by_hand(None, x)
    assert not _recorded.by_hand(x.detach())
    with torch.no_grad():
        assert not _recorded.by_hand(x)
    with torch.autocast("cpu"):
        assert not _recorded.by_hand(x)
