"""EcoFormer: by hand, its codes against the formula, what fitting gives, and where it refuses."""

from __future__ import annotations

import copy

import pytest
import torch

from sparing import Heads, Mask, Unsupported, UsageError, mechanism
from sparing.mechanisms import _hashing
from sparing.mechanisms._codes import hard_signs, learned_bits, pair_labels
from sparing.testing.entries.ecoformer import dense_ecoformer

CAUSAL = Mask(causal=True)


def built(heads=2, dim=8, **options):
    return mechanism("ecoformer", Heads(heads, dim), **options).double()


def drawn(tokens=40, *, batch=1, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shape = (2, batch, 2, tokens, 8)
    return torch.randn(shape, generator=generator, dtype=torch.float64).unbind()


def clustered(tokens=120, *, batch=2, groups=4, noise=0.2, seed=3):
    """Tokens around a few directions: what a hash should separate."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(2, groups, 8, generator=generator, dtype=torch.float64)
    group = torch.randint(groups, (batch, tokens), generator=generator)
    spread = noise * torch.randn(batch, 2, tokens, 8, generator=generator, dtype=torch.float64)
    return centres[:, group].transpose(0, 1) + spread, group


def codes(made, q):
    """Each token's bits, recovered from the weights that it gives itself and others."""
    x = torch.nn.functional.normalize(q, dim=-1)
    squares = (x[..., None, :] - made.centres[:, None]).square().sum(-1)
    kernels = (squares / (-2 * made.sigmas[:, None, None])).exp() - made.means[:, None]
    return hard_signs(torch.einsum("bhna,hra->bhnr", kernels, made.directions))


def test_by_hand():
    made = built(heads=1, dim=2, bits=1, anchors=1)
    made.centres.copy_(torch.tensor([[[1.0, 0.0]]]))
    made.directions.fill_(1.0)
    made.means.fill_(0.5)
    q = torch.tensor([[3.0, 0.0], [0.0, 2.0]], dtype=torch.float64)[None, None]
    # squared distances 0 and 2, sigma 2: kappa 1 and exp(-1/2) = 0.61; both bits are 1
    both = made(q, torch.eye(2).double()[None, None])
    torch.testing.assert_close(both[0, 0], torch.full((2, 2), 0.5, dtype=torch.float64))
    made.means.fill_(0.8)
    # now the bits differ: weights 1 + 2 with itself and -1 + 2 with the other
    apart = made(q, torch.eye(2).double()[None, None])
    expected = torch.tensor([[0.75, 0.25], [0.25, 0.75]], dtype=torch.float64)
    torch.testing.assert_close(apart[0, 0], expected)


@pytest.mark.parametrize("tokens", [1, 64, 65, 150])
@pytest.mark.parametrize("fitted", [False, True])
def test_equals_the_square_form(tokens, fitted):
    made = built()
    if fitted:
        made.fit_hashes(clustered()[0])
    keep = torch.ones(2, tokens, dtype=torch.bool)
    keep[1, : tokens // 3] = False
    q, v = drawn(tokens, batch=2)
    for mask in (Mask(), CAUSAL, Mask(keep), Mask(keep, causal=True)):
        expected = dense_ecoformer(made, q, v, mask=mask)
        real = torch.ones(2, tokens).bool() if mask.keep is None else keep
        real = real[:, None, :, None].expand_as(expected)
        torch.testing.assert_close(made(q, v, mask=mask)[real], expected[real])


def test_the_bias_belongs_to_the_sum_of_the_values():
    """With (bits + 1) v_i in the sum, as in the authors' code, rows of ones come out far below."""
    made, (q, _) = built(), drawn()
    h, ones = codes(made, q), torch.ones(1, 2, 40, 8, dtype=torch.float64)
    beta = made.bits + 1
    totals = (h @ h.sum(2)[..., None]) + beta * 40
    with_extra_values = (h @ (h.transpose(-1, -2) @ ones) + beta * ones) / totals
    assert with_extra_values.max() < 0.7
    torch.testing.assert_close(made(q, ones), ones)
    torch.testing.assert_close(made(q, ones, mask=CAUSAL), ones)


def test_the_length_of_a_query_does_not_matter():
    made, (q, v) = built(), drawn()
    lengths = torch.linspace(0.01, 100, 40, dtype=torch.float64)[:, None]
    torch.testing.assert_close(made(q * lengths, v), made(q, v))


def test_a_neighbour_in_the_batch_does_not_move_the_hash():
    """Sigma stays as fitted: taken from the batch it would change with the values there."""
    made, (q, v) = built(), drawn(batch=2)
    before = made(q, v)
    q = q.clone()
    q[1] = q[1, :, :1]
    torch.testing.assert_close(made(q, v)[0], before[0])


def test_fitted_bits_tell_groups_apart():
    tokens, group = clustered(noise=0.5)
    made = built()
    alike = (group[:, :, None] == group[:, None])[:, None]

    def separation():
        h = codes(made, tokens)
        shared = (h @ h.transpose(-1, -2)) / made.bits
        return shared[alike.expand_as(shared)].mean() - shared[~alike.expand_as(shared)].mean()

    before = separation()
    made.fit_hashes(tokens)
    assert separation() > before + 0.3
    assert separation() > 0.9


def test_fitting_needs_no_luck():
    tokens, _ = clustered()
    torch.manual_seed(1)
    before = torch.get_rng_state()
    made = [built() for _ in range(3)]
    made[0].fit_hashes(tokens)
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(2)
    made[1].fit_hashes(tokens)
    made[1].fit_hashes(tokens)
    spoiled = torch.nn.functional.pad(tokens, (0, 0, 0, 9), value=torch.nan)
    made[2].fit_hashes(spoiled, torch.arange(129).expand(2, -1) < 120)
    for name, value in made[0].state_dict().items():
        assert torch.equal(value, made[1].state_dict()[name])
        assert torch.equal(value, made[2].state_dict()[name])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("fitted", [False, True])
def test_a_cast_leaves_the_hash_as_it_was(dtype, fitted):
    made = built()
    if fitted:
        made.fit_hashes(clustered()[0])
    for name, value in copy.deepcopy(made).to(dtype).state_dict().items():
        torch.testing.assert_close(value.double(), made.state_dict()[name], atol=1e-7, rtol=0)


@pytest.mark.parametrize("tokens", [1, 3])
def test_fitting_to_few_or_equal_tokens(tokens):
    made = built()
    made.fit_hashes(drawn(tokens)[0])
    made.fit_hashes(torch.ones(1, 2, tokens, 8, dtype=torch.float64))
    q, v = drawn()
    assert torch.isfinite(made(q, v)).all()


def test_labels_name_the_nearest_and_the_farthest():
    tokens = torch.tensor([[1.0, 0.0], [0.9, 0.1], [-1.0, 0.0], [0.1, 0.9]])
    labels = pair_labels(tokens, 1)
    assert labels[0, 0] == 1
    assert labels[0, 2] == labels[2, 0] == -1
    assert labels[0, 3] == 0
    assert torch.equal(labels, labels.t())


def test_each_bit_takes_on_what_is_left():
    """Three groups need two bits; a second bit like the first would leave two of them alike."""
    group = torch.arange(30) % 3
    kernels = torch.nn.functional.one_hot(group, 3).double()
    kernels = kernels - kernels.mean(0)
    labels = (group[:, None] == group).double() * 2 - 1
    signs = hard_signs(kernels @ learned_bits(kernels, labels, 3, 20).T)
    shared = signs @ signs.T
    assert shared[labels > 0].min() == 3
    assert shared[labels < 0].max() < 3


def test_gradients_go_straight_through_the_sign():
    q, v = (tensor.requires_grad_() for tensor in drawn())
    built()(q, v).square().sum().backward()
    assert torch.isfinite(q.grad).all()
    assert q.grad.abs().max() > 0


@pytest.mark.parametrize("causal", [False, True])
def test_groups_of_heads_equal_one_piece(monkeypatch, causal):
    q, v = drawn(33, batch=3)
    keep = torch.ones(3, 33, dtype=torch.bool)
    keep[1, 20:] = keep[2, :5] = False
    made, mask = built(), Mask(keep, causal)
    whole = made(q.clone().requires_grad_(), v, mask=mask)
    monkeypatch.setattr(_hashing, "rows_at_once", lambda tokens, dim: 1)
    torch.testing.assert_close(made(q, v, mask=mask), whole)


def test_cached_keys_are_refused():
    q, v = drawn()
    with pytest.raises(Unsupported, match="5 queries and 40 values"):
        built()(q[:, :, -5:], v, mask=CAUSAL)


@pytest.mark.parametrize("option", ["bits", "anchors"])
def test_options_that_cannot_be(option):
    with pytest.raises(UsageError, match=f"{option} must be at least 1"):
        built(**{option: 0})


def test_what_cannot_be_fitted():
    q, _ = drawn()
    with pytest.raises(UsageError, match="batch, 2, tokens, 8"):
        built().fit_hashes(q[..., :4])
    with pytest.raises(UsageError, match="a real token"):
        built().fit_hashes(q, torch.zeros(1, 40, dtype=torch.bool))
    with pytest.raises(UsageError, match="neighbours"):
        built().fit_hashes(q, neighbours=0)
