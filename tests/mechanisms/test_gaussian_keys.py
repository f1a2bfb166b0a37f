"""Mixtures of Gaussian keys: by hand, with one component, far from all keys, over many chunks."""

from __future__ import annotations

import math

import pytest
import torch

from sparing import Heads, Mask, UsageError, mechanism
from sparing.testing.entries.gaussian_keys import dense_gaussian_keys
from sparing.testing.mathematics import _LargestTensor


def built(**options):
    return mechanism("gaussian_keys", Heads(2, 4), **options).double()


def drawn(queries, keys=None, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return tuple(
        torch.randn(2, 2, n, 4, generator=generator, dtype=torch.float64)
        for n in (queries, keys or queries, keys or queries)
    )


def padded(keys):
    keep = torch.ones(2, keys, dtype=torch.bool)
    keep[0, keys // 2 :] = keep[1, 1] = False
    return keep


@pytest.mark.parametrize("mixture", ["soft", "hard"])
def test_by_hand(mixture):
    made = mechanism("gaussian_keys", Heads(1, 1), mixture=mixture, narrowing=2.0).double()
    q, k = torch.zeros(1, 1, 1, 1).double(), torch.tensor([1.0, 2.0]).double().view(1, 1, 2, 1)
    with torch.no_grad():
        made.shifts[1] = 1.5
        # means 1 and -0.5 for the first key, 2 and 0.5 for the second; variances 1 and 1/2
        broad, narrow = (
            [math.exp(-m * m * p) for m in means]
            for p, means in ((1 / 2, (1.0, 2.0)), (1.0, (-0.5, 0.5)))
        )
        if mixture == "soft":
            made.share_logits[0] = torch.tensor([math.log(3), 0.0])
            unnormalised = [0.75 * b + 0.25 * n for b, n in zip(broad, narrow, strict=True)]
        else:
            unnormalised = [max(pair) for pair in zip(broad, narrow, strict=True)]
        output = made(q, k, torch.tensor([1.0, 0.0]).double().view(1, 1, 2, 1))
    torch.testing.assert_close(output.item(), unnormalised[0] / sum(unnormalised))


@pytest.mark.parametrize("mixture", ["soft", "hard"])
def test_one_component_is_probabilistic_attention_with_a_uniform_prior(mixture):
    made = built(components=1, mixture=mixture)
    known = mechanism("probabilistic", Heads(2, 4), prior="uniform")
    cases = [
        (drawn(19), Mask()),
        (drawn(19), Mask(causal=True)),
        (drawn(19), Mask(padded(19), causal=True)),
        (drawn(5, 19), Mask(padded(19))),
    ]
    for streams, mask in cases:
        output, expected = made(*streams, mask=mask), known(*streams, mask=mask)
        torch.testing.assert_close(output, expected, rtol=1e-11, atol=1e-11)


def test_equal_components_are_one():
    streams, one = drawn(9), built(components=1)
    for mixture in ("soft", "hard"):
        made = built(components=3, mixture=mixture)
        with torch.no_grad():
            made.shifts.zero_()
        torch.testing.assert_close(made(*streams), one(*streams))


@pytest.mark.parametrize("mixture", ["soft", "hard"])
def test_far_from_every_key_the_nearest_counts(mixture):
    """Exponentials alone, as in the authors' code, would divide zero by zero."""
    made = mechanism("gaussian_keys", Heads(1, 4), mixture=mixture)
    q = torch.full((1, 1, 1, 4), 40.0)
    k = torch.stack([torch.full((4,), -1.0), torch.full((4,), 1.0)])[None, None]
    v = torch.tensor([[0.0] * 4, [1.0] * 4])[None, None]
    densities = torch.exp(-torch.cdist(q, k).square() / 4)
    assert (densities / densities.sum(-1, keepdim=True)).isnan().all()
    torch.testing.assert_close(made(q, k, v), torch.ones(1, 1, 1, 4))


@pytest.mark.parametrize("mixture", ["soft", "hard"])
@pytest.mark.parametrize("causal", [False, True])
def test_many_pieces_at_any_length_equal_the_reference(mixture, causal):
    made, streams = built(mixture=mixture, narrowing=1.7), drawn(401)
    mask = Mask(padded(401), causal)
    with torch.no_grad(), _LargestTensor() as largest:
        output = made(*streams, mask=mask)
        assert largest.elements < 401 * 401
        expected = dense_gaussian_keys(made, *streams, mask=mask)
    real = mask.keep[:, None, :, None]
    torch.testing.assert_close(output.where(real, 0), expected.where(real, 0), rtol=1e-9, atol=1e-9)


def test_shares_and_shifts_have_no_positions():
    shapes = {name: tuple(value.shape) for name, value in built().named_parameters()}
    assert shapes == {"shifts": (2, 2, 4), "share_logits": (2, 2)}
    assert list(built(mixture="hard").state_dict()) == ["shifts"]


def test_shifts_start_apart_and_the_first_at_zero():
    made = built(components=3)
    assert not made.shifts[0].any()
    assert (made.shifts[1] - made.shifts[2]).abs().min() > 0
    assert torch.equal(made.shifts, built(components=3, seed=0).shifts)
    assert not torch.equal(made.shifts, built(components=3, seed=1).shifts)


@pytest.mark.parametrize("mixture", ["soft", "hard"])
def test_every_component_learns(mixture):
    made = built(mixture=mixture)
    made(*drawn(30)).square().sum().backward()
    assert (made.shifts.grad.abs().amax(-1) > 0).all()
    if mixture == "soft":
        assert (made.share_logits.grad != 0).all()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"components": 0}, "components"),
        ({"mixture": "sof"}, "'soft'"),
        ({"narrowing": 0.0}, "narrowing"),
    ],
)
def test_impossible_options_are_refused(options, named):
    with pytest.raises(UsageError, match=named):
        built(**options)
