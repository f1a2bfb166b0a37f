"""A bias on the scores: which mechanisms take one, in blocks and graphs as in one square."""

from __future__ import annotations

import pytest
import torch

import sparing
from sparing import Heads, Mask
from sparing.core.catalogue import MECHANISMS, mechanism_class
from sparing.mechanisms import local, window
from sparing.testing.paths import on_path

TAKERS = ["eager", "local", "softmax", "strided", "window"]
HEADS = Heads(2, 8)


def drawn(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def written_out(q, k, v, bias, seen):
    scores = (q @ k.mT / 8**0.5 + bias).masked_fill(~seen, -torch.inf)
    return scores.softmax(-1) @ v


def test_which_mechanisms_take_a_bias():
    takers = [name for name in MECHANISMS.names() if mechanism_class(name).takes_bias]
    assert takers == TAKERS


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("recorded", [False, True])
def test_long_rows_are_cut_into_blocks(rows, causal, recorded):
    """Blocks have windows of the bias of their own."""
    made = sparing.mechanism("window", HEADS, radius=5).eval()
    q, k, v = (drawn(rows, 2, 500, 8, seed=seed) for seed in range(3))
    bias = drawn(rows, 2, 500, 500, seed=3).requires_grad_(recorded)
    ahead = torch.arange(500) - torch.arange(500)[:, None]
    seen = (ahead.abs() <= 5) & ((ahead <= 0) | (not causal))
    pieces = window.plan(500, 500, window.Band(5, 0 if causal else 5))
    assert max(piece.blocks for piece in pieces) > 1
    mixed = made(q, k, v, mask=Mask(causal=causal), bias=bias)
    expected = written_out(q, k, v, bias, seen)
    torch.testing.assert_close(mixed, expected, rtol=1e-10, atol=1e-10)
    if recorded:
        (gradient,) = torch.autograd.grad(mixed.square().sum(), bias)
        (true,) = torch.autograd.grad(expected.square().sum(), bias)
        torch.testing.assert_close(gradient, true, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize(
    ("name", "options", "causal"),
    [
        ("window", {"radius": 3}, False),
        ("window", {"radius": 3}, True),
        ("local", {"block": 4, "look_back": 1}, False),
        ("local", {"block": 4, "look_back": 1}, True),
        ("local", {"block": 4, "shifts": (0, 1)}, False),  # shifted blocks are never causal
    ],
)
def test_a_graph_has_one_masked_square(name, options, causal, padded, monkeypatch):
    made = sparing.mechanism(name, HEADS, **options).eval()
    keep = torch.ones(2, 23, dtype=torch.bool)
    keep[0, :3] = keep[1, 15:] = False
    mask = Mask(keep if padded else None, causal)
    q, k, v = (drawn(2, 2, 23, 8, seed=seed) for seed in range(3))
    bias = drawn(1, 2, 23, 23, seed=3)
    expected = made(q, k, v, mask=mask, bias=bias)
    for module in (window, local):
        monkeypatch.setattr(module, "is_traced", lambda: True)
    mixed = made(q, k, v, mask=mask, bias=bias)
    rows = keep if padded else torch.ones_like(keep)
    mixed, expected = (part.transpose(1, 2)[rows] for part in (mixed, expected))
    torch.testing.assert_close(mixed, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", TAKERS)
def test_hidden_by_the_bias_alone_stays_finite(name):
    """Its smallest finite number hides a pair, even where a row sees nothing else."""
    made = sparing.mechanism(name, HEADS).eval()
    q, k, v = (drawn(1, 2, 6, 8, seed=seed).requires_grad_() for seed in range(3))
    bias = torch.full((1, 2, 6, 6), torch.finfo(torch.float64).min, dtype=torch.float64)
    bias[:, :, 1:, 1:] = 0
    keep = torch.tensor([[False] * 2 + [True] * 4])
    mixed = made(q, k, v, mask=Mask(keep), bias=bias)
    assert bool(mixed.isfinite().all())
    mixed.square().sum().backward()
    assert all(bool(part.grad.isfinite().all()) for part in (q, k, v))


def test_wrong_biases_are_named():
    made = sparing.mechanism("softmax", HEADS)
    q = drawn(2, 2, 5, 8)
    with pytest.raises(sparing.UsageError, match=r"bias must be \(batch or 1.*got \(2, 1, 5, 5\)"):
        made(q, q, q, bias=drawn(2, 1, 5, 5))
    with pytest.raises(sparing.UsageError, match=r"bias must be as q, torch\.float64.*float32"):
        made(q, q, q, bias=drawn(2, 2, 5, 5).float())
    with pytest.raises(sparing.Unsupported, match="linear takes no bias"):
        sparing.mechanism("linear", HEADS)(q, q, q, bias=drawn(2, 2, 5, 5))
    with on_path("accelerator"), pytest.raises(sparing.Unsupported, match="'accelerator' cannot"):
        made(q, q, q, bias=drawn(2, 2, 5, 5))
    broken = drawn(2, 2, 5, 5)
    broken[1, 0, 2, 3] = torch.nan
    with pytest.raises(sparing.UsageError, match=r"bias is not finite.*\(1, 0, 2, 3\)"):
        made(q, q, q, bias=broken)
