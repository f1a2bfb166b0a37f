"""Bases for heads: scores stay, and the first coordinates carry the most."""

from __future__ import annotations

import pytest
import torch

from sparing.core.errors import UsageError
from sparing.layers.rotation import bases, energies, rotation

HEADS, TOKENS, DIM = 3, 4000, 8


def drawn(seed=0):
    """Queries and keys of a few strong directions, hidden by a random basis; keys with a mean."""
    generator = torch.Generator().manual_seed(seed)
    spread = torch.exp(-0.6 * torch.arange(DIM).double())
    hidden = torch.linalg.qr(torch.randn(HEADS, DIM, DIM, generator=generator).double())[0]
    q = torch.randn(HEADS, TOKENS, DIM, generator=generator).double() * spread @ hidden
    k = torch.randn(HEADS, TOKENS, DIM, generator=generator).double() * spread @ hidden
    turned = torch.linalg.qr(torch.randn(HEADS, DIM, DIM, generator=generator).double())[0]
    return q, k @ (torch.eye(DIM) + 0.3 * turned) + 5


def covariances(q, k):
    centred = k - k.mean(1, keepdim=True)
    return q.mT @ q / TOKENS, centred.mT @ centred / TOKENS


def lost(q, k, q_basis, k_basis, width):
    """The mean square that scores lose when only the first coordinates are compared."""
    k = k - k.mean(1, keepdim=True)
    rest = (q @ q_basis)[..., width:] @ (k @ k_basis)[..., width:].mT
    return rest[:, :1000].square().mean().item()


def test_scores_are_unchanged():
    q, k = drawn()
    turned = rotation(*covariances(q, k))
    torch.testing.assert_close(turned @ turned.mT, torch.eye(DIM).double().expand(HEADS, -1, -1))
    q_basis, k_basis = bases(*covariances(q, k))
    for first, second in ((turned, turned), (q_basis, k_basis)):
        scores = (q[:, :50] @ first) @ (k[:, :50] @ second).mT
        torch.testing.assert_close(scores, q[:, :50] @ k[:, :50].mT, rtol=1e-10, atol=1e-10)


def test_folded_into_the_weights():
    q, k = drawn()
    turned = rotation(*covariances(q, k))[0]
    weight, bias, x = torch.randn(DIM, 5).double(), torch.randn(DIM).double(), torch.randn(7, 5)
    folded = torch.nn.functional.linear(x.double(), turned.mT @ weight, bias @ turned)
    expected = torch.nn.functional.linear(x.double(), weight, bias) @ turned
    torch.testing.assert_close(folded, expected)


def test_the_first_coordinates_carry_the_most():
    q, k = drawn()
    both = covariances(q, k)
    turned = rotation(*both)
    shares = energies(*both, turned, turned)
    assert (shares.diff(dim=-1) <= 0).all()
    plain = torch.eye(DIM).double()
    for width in (1, 2, 4):
        turned_loss = lost(q, k, turned, turned, width)
        assert turned_loss < 0.6 * lost(q, k, plain, plain, width)
        assert turned_loss < 0.6 * lost(q, k, turned.flip(-1), turned.flip(-1), width)
        assert lost(q, k, *bases(*both), width) <= turned_loss


def test_the_pair_loses_what_the_singular_values_say():
    q, k = drawn()
    q_covariance, k_covariance = covariances(q, k)
    q_basis, k_basis = bases(q_covariance, k_covariance)
    shares = energies(q_covariance, k_covariance, q_basis, k_basis)
    assert (shares.diff(dim=-1) <= 0).all()
    values = torch.linalg.eigvals(q_covariance @ k_covariance).real.sort(descending=True)[0]
    torch.testing.assert_close(shares, values, rtol=1e-6, atol=1e-9)


def test_common_axes_are_found():
    axes = torch.linalg.qr(torch.randn(DIM, DIM).double())[0]
    for_q, for_k = torch.arange(1.0, DIM + 1).double(), torch.tensor([1.0, 9, 1, 1, 5, 1, 1, 2])
    q_covariance = (axes * for_q) @ axes.mT
    turned = rotation(q_covariance, (axes * for_k.double()) @ axes.mT)
    order = (for_q * for_k).argsort(descending=True)
    torch.testing.assert_close((turned.mT @ axes[:, order]).abs(), torch.eye(DIM).double())


def test_axes_that_only_one_of_them_has_are_found():
    axes = torch.linalg.qr(torch.randn(DIM, DIM).double())[0]
    strong = (axes * torch.arange(DIM, 0.0, -1).double()) @ axes.mT
    for both in ((strong, torch.eye(DIM).double()), (torch.eye(DIM).double(), strong)):
        torch.testing.assert_close((rotation(*both).mT @ axes).abs(), torch.eye(DIM).double())


def test_missing_directions_do_no_harm():
    q, k = drawn()
    q[..., 4:] = 0
    both = covariances(q, k)
    for first, second in (bases(*both), (rotation(*both),) * 2):
        assert torch.isfinite(first).all()
        torch.testing.assert_close(
            first @ second.mT, torch.eye(DIM).double().expand(HEADS, -1, -1), atol=1e-6, rtol=0
        )
    nothing = torch.zeros(DIM, DIM)
    assert torch.isfinite(rotation(nothing, nothing)).all()
    assert rotation(nothing, nothing).dtype == torch.float32


def test_bad_covariances_are_refused():
    good = torch.eye(4)
    with pytest.raises(UsageError, match="differ in shape"):
        rotation(good, torch.eye(5))
    with pytest.raises(UsageError, match="q is not finite"):
        rotation(good * torch.nan, good)
    with pytest.raises(UsageError, match="k is not symmetric"):
        bases(good, good.roll(1, 0))
