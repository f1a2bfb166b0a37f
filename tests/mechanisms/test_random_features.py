"""Random feature attention against its recurrence, its kernel, and denominators near zero."""

from __future__ import annotations

import math

import pytest
import torch

from sparing import Heads, Mask, UsageError, mechanism
from sparing.testing.entries.random_features import recurrent_features

CAUSAL = [False, True]


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


def streams(batch, tokens, dim=4, heads=2):
    return [torch.randn(batch, heads, tokens, dim, dtype=torch.float64) for _ in "qkv"]


def moved(name="random_features", heads=2, dim=4, **options):
    """An instance whose parameters are not at their start."""
    made = mechanism(name, Heads(heads, dim), **options).double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return made


@pytest.mark.parametrize("causal", CAUSAL)
@pytest.mark.parametrize("gate", [False, True])
@pytest.mark.parametrize("feature_map", ["trigonometric", "positive"])
def test_equals_its_recurrence_across_chunks(feature_map, gate, causal):
    made = moved(feature_map=feature_map, gate=gate, features=9)
    q, k, v = streams(2, 530)
    keep = torch.ones(2, 530, dtype=torch.bool)
    keep[0, :70] = keep[0, 200:300] = keep[1, 515:] = False
    mask = Mask(keep, causal)
    with torch.no_grad():
        expected = recurrent_features(made, q, k, v, mask=mask)
        chunked = made(q, k, v, mask=mask)
    recorded = made(q, k, v, mask=mask)
    real = keep[:, None, :, None]
    for output in (chunked, recorded):
        torch.testing.assert_close(
            output.where(real, 0), expected.where(real, 0), rtol=1e-8, atol=1e-8
        )


@pytest.mark.parametrize("share", [0.5, 0.99])
def test_a_constant_gate_is_a_plain_decay(share):
    made = mechanism("random_features", Heads(2, 4), gate=True, floor=1e-6).double()
    with torch.no_grad():
        made.gate_bias.fill_(math.log(share / (1 - share)))
    plain = mechanism("random_features", Heads(2, 4), floor=1e-6).double()
    q, k, v = streams(1, 200)
    output = made(q, k, v, mask=Mask(causal=True))
    for last in (0, 1, 63, 64, 199):
        visible = slice(0, last + 1)
        decay = share ** torch.arange(last, -1, -1).double()
        weights = decay * similarities(plain, q[:, :, last : last + 1], k[:, :, visible])[:, :, 0]
        expected = (weights[..., None] * v[:, :, visible]).sum(2) / weights.sum(-1, keepdim=True)
        torch.testing.assert_close(output[:, :, last], expected, rtol=1e-8, atol=1e-8)


def similarities(made, q, k):
    """phi(q_i) . phi(k_j), trigonometric, each written as a mean of cosines."""
    units = [made.sigma * x / x.norm(dim=-1, keepdim=True) / made.temperature for x in (q, k)]
    phases = [unit @ made.directions.rows.T for unit in units]
    return (phases[0][..., :, None, :] - phases[1][..., None, :, :]).cos().mean(-1)


@pytest.mark.parametrize("gate", [False, True])
def test_without_causality_all_queries_read_the_last_state(gate):
    made = moved(gate=gate)
    q, k, v = streams(2, 130)
    causal = made(q, k, v, mask=Mask(causal=True))
    torch.testing.assert_close(made(q, k, v)[:, :, -1], causal[:, :, -1], rtol=1e-9, atol=1e-9)


def test_a_gate_forgets_in_single_precision_over_many_tokens():
    """Sums of logarithms reach thousands; weights still come from their differences."""
    made = mechanism("random_features", Heads(1, 8), gate=True)
    with torch.no_grad():
        made.gate_weight.normal_(std=2.0, generator=torch.Generator().manual_seed(1))
        made.gate_bias.fill_(-1.0)
    q, k, v = streams(1, 6000, dim=8, heads=1)
    exact = mechanism("random_features", Heads(1, 8), gate=True).double()
    exact.load_state_dict(made.state_dict())
    for causal in CAUSAL:
        with torch.no_grad():
            expected = exact(q, k, v, mask=Mask(causal=causal))
            output = made(*(x.float() for x in (q, k, v)), mask=Mask(causal=causal)).double()
        assert (output - expected).abs().median() < 1e-6
        torch.testing.assert_close(output, expected, rtol=0, atol=2e-4)


def opposed(angle, features=1):
    """One query and one key whose phases differ by ``angle`` along every direction."""
    made = mechanism("random_features", Heads(1, 2), features=features, floor=0.01).double()
    made.directions.rows.copy_(torch.tensor([angle / 2, 0.0], dtype=torch.float64))
    q, k = torch.tensor([1.0, 0.0]).double(), torch.tensor([-1.0, 0.0]).double()
    v = torch.tensor([3.0, -2.0]).double()
    return made, [x.view(1, 1, 1, 2) for x in (q, k, v)]


@pytest.mark.parametrize("angle", [0.3, 1.4, 2.5, 3.1])
def test_a_negative_denominator_keeps_its_sign(angle):
    """One key alone has weight 1 whatever its similarity; raised to 1, the denominator loses it.

    That is why the authors' clamp is not ours: it shrinks the value, or turns it round.
    """
    made, (q, k, v) = opposed(angle)
    similarity = math.cos(angle)
    torch.testing.assert_close(made(q, k, v), v)
    torch.testing.assert_close(made(q, k, v, mask=Mask(causal=True)), v)
    clamped = similarity * v / max(similarity, 1.0)
    assert (clamped - v).abs().max() > 0.1
    assert (similarity < 0) == (clamped[..., 0] < 0).item()


@pytest.mark.parametrize("side", [-1, 1])
def test_a_denominator_near_zero_stops_at_the_floor(side):
    made, (q, k, v) = opposed(math.pi / 2 + side * 0.001)
    similarity = math.cos(math.pi / 2 + side * 0.001)
    expected = similarity * v / math.copysign(0.01, similarity)
    for mask in (Mask(), Mask(causal=True)):
        torch.testing.assert_close(made(q, k, v, mask=mask), expected)
    leaves = [x.requires_grad_() for x in (q, k, v)]
    for gradient in torch.autograd.grad(made(*leaves).sum(), leaves):
        assert gradient.isfinite().all()


@pytest.mark.parametrize("causal", CAUSAL)
def test_the_floor_counts_visible_tokens(causal):
    """Many keys at right angles to the query: each adds 1 to what the floor is a share of."""
    made, (q, k, v) = opposed(math.pi / 2 + 0.001, features=5)
    similarity = math.cos(math.pi / 2 + 0.001)
    q, k, v = (x.expand(1, 1, 700, 2) for x in (q, k, v))
    expected = similarity * v / math.copysign(0.01, similarity)
    torch.testing.assert_close(made(q, k, v, mask=Mask(causal=causal)), expected)


@pytest.mark.parametrize("feature_map", ["trigonometric", "positive"])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_features_estimate_softmax_of_unit_vectors(feature_map, temperature):
    """With 20,000 features most weights are off by 1 %, the very largest positive ones by 40 %."""
    options = {"feature_map": feature_map, "temperature": temperature, "features": 20000}
    made = mechanism("random_features", Heads(2, 4), **options).double()
    q, k, v = streams(1, 30)
    units = [torch.nn.functional.normalize(x, dim=-1) / temperature for x in (q, k)]
    expected = (units[0] @ units[1].mT).softmax(-1) @ v
    with torch.no_grad():
        assert (made(q, k, v) - expected).square().mean().sqrt() < 0.05


def test_waves_estimate_the_gaussian_kernel():
    """phi(q) . phi(k) is near exp(q . k / temperature^2 - 1 / temperature^2) for unit vectors."""
    made = mechanism("random_features", Heads(1, 4), features=40000, temperature=0.8).double()
    q, k, _ = streams(1, 5, heads=1)
    units = [x / x.norm(dim=-1, keepdim=True) / 0.8 for x in (q, k)]
    expected = (units[0] @ units[1].mT - 1 / 0.8**2).exp()
    torch.testing.assert_close(similarities(made, q, k), expected, rtol=0, atol=0.03)


def test_lengths_of_queries_and_keys_do_not_matter():
    made = moved()
    q, k, v = streams(1, 20)
    torch.testing.assert_close(made(7 * q, 0.01 * k, v), made(q, k, v))


def test_redraw_and_orthogonal_directions():
    made = mechanism("random_features", Heads(2, 8), features=8, orthogonal=True)
    first = made.directions.rows.clone()
    square = first @ first.T
    torch.testing.assert_close(square, torch.diag(square.diagonal()), atol=1e-4, rtol=0)
    made.redraw()
    assert not torch.equal(first, made.directions.rows)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("features", 0),
        ("feature_map", "relu"),
        ("temperature", 0.0),
        ("floor", 0.0),
        ("floor", 1.0),
    ],
)
def test_impossible_options_are_refused(option, value):
    with pytest.raises(UsageError, match=option):
        mechanism("random_features", Heads(1, 4), **{option: value})
