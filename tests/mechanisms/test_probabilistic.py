"""Probabilistic attention: its limits, a slow loop for EM, and what each step must improve."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from sparing import Heads, Mask, Unsupported, UsageError, mechanism
from sparing.mechanisms.probabilistic import values_known

TOKENS, DIM = 9, 4
STEPS = [
    {"precision": 0.7, "prior": "uniform"},
    {"key_adaptation": 2, "key_prior": 0.4},
    {"key_adaptation": 1, "prior": "uniform"},
    {"value_precision": 0.6, "value_iterations": 3},
    {"value_precision": 0.6, "key_adaptation": 2, "prior": "uniform"},
    {"value_precision": 0.6, "value_adaptation": 2, "value_prior": 0.3},
    {"value_precision": 0.25, "value_adaptation": 1, "key_adaptation": 1, "prior": "uniform"},
]


def built(**options):
    return mechanism("probabilistic", Heads(2, DIM), **options)


def drawn(tokens=TOKENS, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(3, 2, 2, tokens, DIM, generator=generator, dtype=torch.float64).unbind()


def loops(made, q, k, v, *, mask, known=None, values=None):
    """The mixture of Gaussians, one query and one key at a time."""
    out = torch.zeros_like(q)
    allowed = mask.dense(q.shape[2], k.shape[2])
    if allowed is None:
        allowed = torch.ones(1, 1, q.shape[2], k.shape[2], dtype=torch.bool)
    allowed = allowed.expand(len(q), -1, -1, -1)
    for sample in range(len(q)):
        real = [True] * q.shape[2]
        if mask.keep_queries(q.shape[2]) is not None:
            real = mask.keep_queries(q.shape[2])[sample].tolist()
        given = {}
        if known is not None:
            given = {i: values[sample, :, i] for i in range(len(real)) if known[sample, i]}
        for head in range(q.shape[1]):
            head_values = {i: value[head] for i, value in given.items() if real[i]}
            streams = (tensor[sample, head] for tensor in (q, k, v))
            out[sample, head] = _loop_head(made, *streams, allowed[sample, 0], real, head_values)
    return out


def _loop_head(made, q, k, v, allowed, real, known):
    alpha = 1 / math.sqrt(q.shape[1]) if made.precision is None else made.precision
    beta = made.value_precision

    def row(i, keys, means=None, value=None):
        logs = torch.full((len(k),), -math.inf, dtype=q.dtype)
        for j in range(len(k)):
            if allowed[i, j]:
                logs[j] = -alpha / 2 * (q[i] - keys[j]).square().sum()
                if made.prior == "magnitude":
                    logs[j] += alpha / 2 * k[j].square().sum()
                if value is not None:
                    logs[j] += -beta / 2 * (value - means[j]).square().sum()
        return logs.softmax(0).nan_to_num(0)

    def drawn_to(given, prior, points, weights, precision):
        means = torch.zeros_like(given)
        for j in range(len(given)):
            above, below = prior * given[j], prior
            for point, weight in zip(points, weights, strict=True):
                above = above + precision * weight[j] * point
                below = below + precision * weight[j]
            means[j] = above / below
        return means

    keys, means = k, v
    rows = [i for i in range(len(q)) if real[i]]
    for _ in range(made.key_adaptation):
        weights = [row(i, keys) for i in rows]
        keys = drawn_to(k, made.key_prior, [q[i] for i in rows], weights, alpha)
    of_rows = {i: v[i] for i in rows}
    for _ in range(made.value_adaptation):
        weights = [row(i, keys, means, value) for i, value in of_rows.items()]
        means = drawn_to(v, made.value_prior, list(of_rows.values()), weights, beta)
    for _ in range(made.value_propagation if known else 0):
        weights = [row(i, keys, means, value) for i, value in known.items()]
        means = drawn_to(v, made.value_prior, list(known.values()), weights, beta)
    out = torch.zeros_like(q)
    for i in range(len(q)):
        out[i] = row(i, keys) @ means
        for _ in range(made.value_iterations if beta else 0):
            out[i] = row(i, keys, means, out[i]) @ means
    for i, value in known.items():
        out[i] = value
    return out


def test_defaults_are_softmax_bit_for_bit():
    streams = drawn()
    softmax = mechanism("softmax", Heads(2, DIM))
    keep = torch.ones(2, TOKENS, dtype=torch.bool)
    keep[1, 5:] = False
    for mask in (Mask(), Mask(causal=True), Mask(keep), Mask(keep, causal=True)):
        output, expected = built()(*streams, mask=mask), softmax(*streams, mask=mask)
        real = torch.ones(2, TOKENS).bool() if mask.keep is None else mask.keep
        assert torch.equal(output.transpose(1, 2)[real], expected.transpose(1, 2)[real])


def test_uniform_prior_is_softmax_for_keys_of_equal_norm():
    q, k, v = drawn()
    k = 3 * nn.functional.normalize(k, dim=-1)
    expected = mechanism("softmax", Heads(2, DIM))(q, k, v)
    torch.testing.assert_close(built(prior="uniform")(q, k, v), expected)


def test_uniform_prior_by_hand():
    q = torch.zeros(1, 1, 1, DIM, dtype=torch.float64)
    k = torch.zeros(1, 1, 2, DIM, dtype=torch.float64)
    k[0, 0, 1, 0] = math.sqrt(2 * math.log(3))
    v = torch.eye(2, DIM, dtype=torch.float64)[None, None]
    out = mechanism("probabilistic", Heads(1, DIM), prior="uniform", precision=1.0)(q, k, v)
    # densities 1 and exp(-log 3) = 1/3
    torch.testing.assert_close(out[0, 0, 0], torch.tensor([0.75, 0.25, 0.0, 0.0]).double())


@pytest.mark.parametrize("options", STEPS, ids=str)
def test_equals_the_loop(options):
    made = built(**options)
    keep = torch.ones(2, TOKENS, dtype=torch.bool)
    keep[0, 7:] = keep[1, :2] = keep[1, 4] = False
    for causal in (False, True) if made.traits.causal else (False,):
        for mask in (Mask(causal=causal), Mask(keep, causal)):
            output, expected = made(*drawn(), mask=mask), loops(made, *drawn(), mask=mask)
            real = torch.ones(2, TOKENS).bool() if mask.keep is None else keep
            real = real[:, None, :, None].expand_as(output)
            torch.testing.assert_close(output[real], expected[real])


def densities(points, means, precision):
    """The density of a Gaussian around each mean at each point, without its constant factor."""
    gaps = points[:, None, :] - means[None, :, :]
    return np.exp(-precision / 2 * (gaps**2).sum(-1))


def em_by_numpy(made, q, k, v):
    """One head's answers and the log of what each step of EM must raise: plain densities."""
    alpha, beta = made.precision or 1 / np.sqrt(q.shape[1]), made.value_precision
    prior = np.ones(len(k))
    if made.prior == "magnitude":
        prior = np.exp(alpha / 2 * (k**2).sum(1))
    prior = prior / prior.sum()
    steps = []

    def shares(joint):
        return joint / joint.sum(1, keepdims=True)

    keys, means = k, v
    for _ in range(made.key_adaptation):
        joint = densities(q, keys, alpha) * prior
        pull = made.key_prior / 2 * ((keys - k) ** 2).sum()
        steps.append(np.log(joint.sum(1)).sum() - pull)
        weights = alpha * shares(joint)
        keys = (made.key_prior * k + weights.T @ q) / (made.key_prior + weights.sum(0))[:, None]
    of_queries = densities(q, keys, alpha) * prior
    for _ in range(made.value_adaptation):
        joint = of_queries * densities(v, means, beta)
        pull = made.value_prior / 2 * ((means - v) ** 2).sum()
        steps.append(np.log(joint.sum(1)).sum() - pull)
        weights = beta * shares(joint)
        above = made.value_prior * v + weights.T @ v
        means = above / (made.value_prior + weights.sum(0))[:, None]
    out = shares(of_queries) @ means
    for _ in range(made.value_iterations if beta else 0):
        out = shares(of_queries * densities(out, means, beta)) @ means
    return out, steps


@pytest.mark.parametrize("options", [{}, *STEPS], ids=str)
def test_equals_em_in_numpy(options):
    made, streams = built(**options), drawn()
    output = made(*streams)
    for sample, head in itertools.product(range(2), range(2)):
        expected, _ = em_by_numpy(made, *(stream[sample, head].numpy() for stream in streams))
        np.testing.assert_allclose(output[sample, head].numpy(), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("adapted", ["key_adaptation", "value_adaptation"])
def test_each_step_of_em_makes_queries_or_values_more_probable(adapted):
    made = built(prior="uniform", value_precision=0.7, **{adapted: 6})
    _, steps = em_by_numpy(made, *(stream[0, 0].numpy() for stream in drawn()))
    assert all(after >= before for before, after in itertools.pairwise(steps))
    assert steps[-1] > steps[0] + 1e-3


def test_adapted_values_are_those_of_all_positions_known():
    q, k, v = drawn()
    adapted = built(value_precision=0.5, value_adaptation=2)(q, k, v)
    known = built(value_precision=0.5, value_propagation=2)
    with values_known(known, torch.ones(2, TOKENS, dtype=torch.bool)):
        assert torch.equal(known(q, k, v), v)
    assert not torch.allclose(adapted, built(value_precision=0.5)(q, k, v))
    both = built(value_precision=0.5, value_adaptation=1)
    with (
        values_known(both, torch.ones(2, TOKENS, dtype=torch.bool)),
        pytest.raises(UsageError, match="knows all values"),
    ):
        both(q, k, v)


def test_uniform_prior_trains_in_the_fused_kernel():
    streams = [tensor.requires_grad_() for tensor in drawn()]
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        built(prior="uniform")(*streams).sum().backward()
    assert all(tensor.grad is not None for tensor in streams)


def test_more_value_iterations_make_the_values_more_probable():
    q, k, v = drawn()
    reached = []
    for count in range(1, 6):
        out = built(prior="uniform", value_precision=2.0, value_iterations=count)(q, k, v)
        logs = -torch.cdist(q, k).square() / 4 - torch.cdist(out, v).square()
        reached.append(logs.logsumexp(-1))
    for before, after in itertools.pairwise(reached):
        assert (after >= before - 1e-12).all()
    assert (reached[-1] > reached[0] + 1e-3).any()


def test_known_values_equal_the_loop():
    made = built(value_precision=0.8, value_prior=0.3, value_propagation=2, value_iterations=2)
    q, k, v = drawn()
    values = drawn(seed=1)[0]
    known = torch.zeros(2, TOKENS, dtype=torch.bool)
    known[0, [1, 8]] = known[1, [0, 3]] = True
    keep = torch.ones(2, TOKENS, dtype=torch.bool)
    keep[0, 8:] = keep[1, :2] = False
    for mask in (Mask(), Mask(keep)):
        with values_known(made, known, values):
            output = made(q, k, v, mask=mask)
        expected = loops(made, q, k, v, mask=mask, known=known, values=values)
        real = torch.ones(2, TOKENS).bool() if mask.keep is None else keep
        real = real[:, None, :, None].expand_as(output)
        torch.testing.assert_close(output[real], expected[real])


def test_a_known_value_draws_its_like():
    q, k, v = drawn()
    q[:, :, 1] = q[:, :, 0]
    made = built(value_precision=1.0, value_prior=0.1)
    target = torch.full_like(v, 2.0)
    known = torch.zeros(2, TOKENS, dtype=torch.bool)
    known[:, 0] = True
    before = made(q, k, v)
    with values_known(nn.ModuleList([made]), known, target):
        during = made(q, k, v)
    assert torch.equal(during[:, :, 0], target[:, :, 0])
    gaps = [(out - target)[:, :, 1].norm(dim=-1) for out in (before, during)]
    assert (gaps[1] < gaps[0]).all()
    assert torch.equal(made(q, k, v), before)


def test_known_values_default_to_the_own():
    q, k, v = drawn()
    made = built(value_precision=1.0)
    known = torch.zeros(2, TOKENS, dtype=torch.bool)
    known[:, 2] = True
    with values_known(made, known):
        assert torch.equal(made(q, k, v)[:, :, 2], v[:, :, 2])


def test_known_values_that_cannot_be():
    q, k, v = drawn()
    known = torch.ones(2, TOKENS, dtype=torch.bool)
    made = built(value_precision=1.0)
    with values_known(made, known), pytest.raises(Unsupported, match="causal"):
        made(q, k, v, mask=Mask(causal=True))
    with values_known(made, known[:, 1:]), pytest.raises(UsageError, match="positions"):
        made(q, k, v)
    with values_known(made, known), pytest.raises(UsageError, match="cross"):
        made(q, k, v, mask=Mask(cross=True))
    with values_known(made, known, v[..., 1:]), pytest.raises(UsageError, match="values must be"):
        made(q, k, v)
    plain = built()
    with values_known(plain, known), pytest.raises(UsageError, match="value_precision"):
        plain(q, k, v)
    with pytest.raises(UsageError, match="no probabilistic"), values_known(nn.Identity(), known):
        pass


@pytest.mark.parametrize(
    "options",
    [
        {"prior": "flat"},
        {"precision": 0.0},
        {"key_prior": 0.0},
        {"value_prior": -1.0},
        {"value_precision": -0.1},
        {"key_adaptation": -1},
        {"value_adaptation": -1},
        {"value_adaptation": 1},
        {"value_iterations": 0},
        {"value_propagation": 0},
    ],
    ids=str,
)
def test_options_that_cannot_be(options):
    with pytest.raises(UsageError, match=next(iter(options))):
        built(**options)


def test_what_is_adapted_refuses_causality():
    with pytest.raises(Unsupported, match="causal"):
        built(key_adaptation=1)(*drawn(), mask=Mask(causal=True))
    adapted = built(value_precision=1.0, value_adaptation=1)
    with pytest.raises(Unsupported, match="causal"):
        adapted(*drawn(), mask=Mask(causal=True))
    with pytest.raises(Unsupported, match="cross"):
        adapted(*drawn(), mask=Mask(cross=True))
