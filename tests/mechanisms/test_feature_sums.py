"""Feature sums on accelerators: against plain sums, in any layout, and at the limits of types."""

from __future__ import annotations

import math

import pytest
import torch

from sparing import Heads, Mask, mechanism
from sparing.mechanisms.shared.sums import feature_sums
from sparing.testing.paths import on_path

NAMES = ("linear", "kerformer", "efficient", "cosformer")
CAUSAL = Mask(causal=True)


def drawn(queries, keys=None, *, batch=2, heads=3, dim=8, dtype=torch.float64, scale=1.0):
    generator = torch.Generator().manual_seed(3)
    sizes = (queries, keys or queries, keys or queries)
    made = [torch.randn(batch, heads, n, dim, generator=generator, dtype=dtype) for n in sizes]
    return [made[0] * scale, made[1] * scale, made[2]]


def both(made, given, mask):
    outputs = []
    for path in ("accelerator", "cpu"):
        with on_path(path):
            outputs.append(made(*given, mask=mask))
    return outputs


@pytest.mark.parametrize("early", [0, 5, 70, 1100])
@pytest.mark.parametrize("count", [1, 63, 64, 65, 200])
def test_sums_up_to_each_query(count, early):
    q, k, v = drawn(count, count + early)
    weights = (q @ k.mT).tril(early)
    torch.testing.assert_close(feature_sums.over_past(q, k, v), weights @ v)
    torch.testing.assert_close(feature_sums.past_keys(k, count), k.cumsum(2)[:, :, early:])


@pytest.mark.parametrize("tokens", [1, 500, 1024, 1030, 2048])
def test_sums_over_all(tokens):
    q, k, v = drawn(tokens)
    torch.testing.assert_close(feature_sums.over_all(q, k, v), q @ (k.mT @ v))


@pytest.mark.parametrize("chunks", [1, 3, 4, 5, 17, 40])
def test_chunks_in_groups(monkeypatch, chunks):
    monkeypatch.setattr(feature_sums, "MOST_CHUNKS", 3)
    parts = torch.randn(2, chunks, 4, 5, generator=torch.Generator().manual_seed(0)).double()
    expected = parts.cumsum(1) - parts
    torch.testing.assert_close(feature_sums.sums_before(parts), expected)


@pytest.mark.parametrize("function", [feature_sums.scaled, feature_sums.divided])
@pytest.mark.parametrize("shape", [(2, 3, 1), (1, 3, 1)])
def test_factors_have_the_derived_gradients(function, shape):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(2, 3, 4, generator=generator, dtype=torch.float64).requires_grad_()
    by = (torch.rand(shape, generator=generator, dtype=torch.float64) + 0.5).requires_grad_()
    assert torch.autograd.gradcheck(function, (x, by))
    assert torch.autograd.gradgradcheck(function, (x, by))


def test_a_quotient_with_one_denominator_for_each_feature_has_the_derived_gradients():
    x, by = torch.rand(2, 2, 3, 4, generator=torch.Generator().manual_seed(1)).double() + 0.5
    given = x.requires_grad_(), by.requires_grad_()
    assert torch.autograd.gradcheck(feature_sums.divided, given)
    assert torch.autograd.gradgradcheck(feature_sums.divided, given)


def test_factors_are_rounded_once_to_the_type_of_the_numbers():
    x = torch.linspace(1, 2, 97).bfloat16()[:, None]
    by = torch.linspace(1, 3, 97)[:, None]
    assert torch.equal(feature_sums.scaled(x, by), (x.double() * by.double()).bfloat16())
    assert torch.equal(feature_sums.divided(x, by), (x.double() / by.double()).bfloat16())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("queries", [1, 20, 70])
def test_fewer_queries_are_the_last_rows(name, queries):
    made = mechanism(name, Heads(3, 8, tokens=200)).double()
    q, k, v = drawn(queries, 150)
    keep = torch.ones(2, 150, dtype=torch.bool)
    keep[0, :40] = keep[1, 100:] = False
    for mask in (CAUSAL, Mask(keep, causal=True)):
        output, expected = both(made, (q, k, v), mask)
        torch.testing.assert_close(output, expected)


@pytest.mark.parametrize("name", ["linear", "kerformer", "efficient"])
def test_cross_attention(name):
    made = mechanism(name, Heads(3, 8)).double()
    output, expected = both(made, drawn(30, 1024), Mask(cross=True))
    torch.testing.assert_close(output, expected)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dim", [3, 40, 256])
@pytest.mark.parametrize("causal", [False, True])
def test_tokens_before_heads_and_expanded_streams(name, dim, causal):
    made = mechanism(name, Heads(3, dim, tokens=1024)).double()
    q, k, v = drawn(130, dim=dim)
    q, k = (part.transpose(1, 2).contiguous().transpose(1, 2) for part in (q, k))
    v = v[:1, :1].expand(2, 3, -1, -1)
    given = [part.detach().requires_grad_() for part in (q, k, v)]
    output, expected = both(made, given, Mask(causal=causal))
    torch.testing.assert_close(output, expected)
    weights = torch.randn(output.shape, generator=torch.Generator().manual_seed(0)).double()
    gradients, known = (torch.autograd.grad((o * weights).sum(), given) for o in (output, expected))
    torch.testing.assert_close(gradients, known)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("causal", [False, True])
def test_half_precision_holds_many_and_large_tokens(name, causal):
    """Sums of 70,000 tokens leave the range of float16 unless keys are scaled."""
    tokens = 70_000
    q, k, v = drawn(tokens, batch=1, heads=1, dtype=torch.float32, scale=3.0)
    v = v + 1
    made = mechanism(name, Heads(1, 8, tokens=tokens))
    with torch.no_grad(), on_path("accelerator"):
        expected = made(q, k, v, mask=Mask(causal=causal))
        for dtype in (torch.float16, torch.bfloat16):
            half = mechanism(name, Heads(1, 8, tokens=tokens)).to(dtype)
            output = half(*(part.to(dtype) for part in (q, k, v)), mask=Mask(causal=causal))
            gap = (output.float() - expected).square().mean().sqrt()
            assert gap < 4 * torch.finfo(dtype).eps * expected.square().mean().sqrt()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rise", [3.0, 40.0, 100.0])
def test_a_loud_future_leaves_the_past_alone(name, dtype, rise):
    made = mechanism(name, Heads(3, 8, tokens=200)).to(dtype)
    q, k, v = drawn(150, dtype=torch.float32)
    given = [part.to(dtype) for part in (q, k, v)]
    with torch.no_grad(), on_path("accelerator"):
        before = made(*given, mask=CAUSAL)
        given[1][:, :, 70:] += rise
        given[2][:, :, 70:] *= 50
        after = made(*given, mask=CAUSAL)
    bound = 2e-5 if dtype == torch.float32 else 8 * torch.finfo(dtype).eps
    torch.testing.assert_close(after[:, :, :70], before[:, :, :70], atol=bound, rtol=bound)


def test_what_vanishes_beside_a_later_key_is_not_a_number():
    made = mechanism("efficient", Heads(3, 8))
    q, k, v = drawn(150, dtype=torch.float32)
    k[:, :, 100:] += 200
    with torch.no_grad(), on_path("accelerator"):
        for path_keep in (None, torch.arange(150).expand(2, -1) >= 30):
            output = made._mixed({"q": q, "k": k, "v": v}, Mask(path_keep, causal=True))
            first = 0 if path_keep is None else 30
            assert output[:, :, first:100].isnan().all()
            assert output[:, :, 100:].isfinite().all()


@pytest.mark.parametrize("name", NAMES)
def test_samples_of_pads_alone_have_finite_gradients(name):
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        made = mechanism(name, Heads(3, 8, tokens=200)).to(dtype)
        given = [part.to(dtype).requires_grad_() for part in drawn(70, dtype=torch.float32)]
        keep = torch.ones(2, 70, dtype=torch.bool)
        keep[1] = keep[0, :20] = False
        for mask in (Mask(keep), Mask(keep, causal=True)):
            with on_path("accelerator"):
                output = made(*given, mask=mask)
            gradients = torch.autograd.grad(output.float().square().sum(), given)
            assert all(part.isfinite().all() for part in (output, *gradients))


@pytest.mark.parametrize("name", ["linear", "kerformer", "cosformer"])
def test_small_features_in_half_precision_keep_rows_that_sum_to_one(name):
    options = {"activation": "elu"} if name == "cosformer" else {}
    made = mechanism(name, Heads(3, 8, tokens=200), **options).to(torch.float16)
    q, k, v = drawn(40, dtype=torch.float32)
    given = [(q - 50).half(), (k - 50).half(), torch.ones_like(v).half()]
    with torch.no_grad(), on_path("accelerator"):
        for causal in (False, True):
            output = made(*given, mask=Mask(causal=causal))
            torch.testing.assert_close(output, given[2], atol=5e-3, rtol=0)


@pytest.mark.parametrize("spread", [1.0, 20.0])
def test_causal_gradients_hold_keys_far_apart(spread):
    made = mechanism("efficient", Heads(3, 8))
    single = [part.requires_grad_() for part in drawn(150, dtype=torch.float32)]
    exact = [part.detach().double().requires_grad_() for part in single]
    gradients = []
    for given in (single, exact):
        scaled = (given[0], given[1] * spread, given[2])
        with on_path("accelerator" if given is single else "cpu"):
            output = made.to(given[0].dtype)(*scaled, mask=CAUSAL)
        weights = torch.randn(output.shape, generator=torch.Generator().manual_seed(1))
        loss = (output * weights.to(output.dtype)).sum()
        gradients.append(torch.autograd.grad(loss, given))
    for gradient, expected in zip(*gradients, strict=True):
        bound = 1e-4 * expected.abs().max().item()
        torch.testing.assert_close(gradient.double(), expected, atol=bound, rtol=1e-3)


def test_no_chunk_is_longer_than_a_state_is_wide():
    sizes = [feature_sums._size(10_000, features) for features in (3, 64, 65, 128, 512)]
    assert sizes == [64, 64, 128, 128, 128]
    assert feature_sums._size(5, 64) == 5
    assert math.gcd(*sizes) == 64
