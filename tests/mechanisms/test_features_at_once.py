"""Random features and hashes without loops: ranges, groups of chunks, layouts, low precision."""

from __future__ import annotations

import copy

import pytest
import torch

from sparing import Heads, Mask, mechanism
from sparing.core.mechanism import Mechanism
from sparing.mechanisms import yoso
from sparing.mechanisms.shared import memory
from sparing.mechanisms.shared.products import wide_product
from sparing.mechanisms.shared.sums import past
from sparing.testing.paths import on_path
from sparing.testing.references import normalised

HALVES = (torch.bfloat16, torch.float16)
OPTIONS = {
    "performer": {},
    "performer-relu": {"feature_map": "relu"},
    "random_features": {},
    "random_features-gated": {"gate": True},
    "random_features-positive": {"feature_map": "positive", "gate": True},
    "ecoformer": {},
    "lisa": {},
    "yoso": {},
    "yoso-sampled": {"expectation": False, "bits": 4, "conv_kernel": 3},
}
CASES = [
    (name, causal)
    for name in OPTIONS
    for causal in ([False] if name.startswith("yoso") else [False, True])
]


def _made(name: str, heads: Heads, **options: object) -> Mechanism:
    return mechanism(name.partition("-")[0], heads, **{**OPTIONS[name], **options}).eval()


def _given(made: Mechanism, tokens: int, dtype: torch.dtype, scale: float = 1.0):
    torch.manual_seed(0)
    heads = made.heads
    inside, around = (2, heads.count, tokens, heads.dim), (2, tokens, heads.count * heads.dim)
    return [(torch.randn(around if s == "x" else inside) * scale).to(dtype) for s in made.streams]


def _away(output, expected):
    return ((output.double() - expected).norm() / expected.norm()).item()


@torch.no_grad()
@pytest.mark.parametrize(("name", "causal"), CASES)
@pytest.mark.parametrize("dtype", [torch.float32, *HALVES])
def test_large_inputs_stay_right(name, causal, dtype):
    made = _made(name, Heads(2, 32, tokens=300)).to(dtype)
    exact, mask = copy.deepcopy(made).double(), Mask(causal=causal)
    bound = {torch.float32: 2e-4, torch.bfloat16: 5e-3, torch.float16: 8e-4}[dtype]
    for scale in (1.0, 10.0, 100.0):
        given = _given(made, 300, dtype, scale)
        expected = exact(*(stream.double() for stream in given), mask=mask)
        with on_path("accelerator"):
            assert _away(made(*given, mask=mask), expected) < bound


@torch.no_grad()
@pytest.mark.parametrize(("name", "causal"), CASES)
@pytest.mark.parametrize("dtype", HALVES)
def test_without_gradients_half_precision_loses_at_most_twice_as_much(name, causal, dtype):
    made = _made(name, Heads(2, 64, tokens=300)).to(dtype)
    exact, mask = copy.deepcopy(made).double(), Mask(causal=causal)
    given = _given(made, 300, dtype)
    expected = exact(*(stream.double() for stream in given), mask=mask)
    away = {}
    for path in ("cpu", "accelerator"):
        with on_path(path):
            away[path] = _away(made(*given, mask=mask), expected)
    assert away["accelerator"] <= 2 * away["cpu"]


@pytest.mark.parametrize("name", [name for name, causal in CASES if causal])
@pytest.mark.parametrize(("queries", "keys"), [(61, 61), (50, 75), (1, 40), (24, 29)])
def test_sums_pass_from_group_to_group(name, queries, keys, monkeypatch):
    monkeypatch.setattr(past, "CHUNK", 4)
    monkeypatch.setattr(past, "GROUP", 3)
    if name == "ecoformer" and queries != keys:
        pytest.skip("needs all queries")
    made = _made(name, Heads(2, 8, tokens=keys)).double()
    keep = torch.ones(2, keys, dtype=torch.bool)
    keep[0, :7] = keep[1, -9:] = False
    for mask in (Mask(causal=True), Mask(keep, causal=True)):
        given = _given(made, keys, torch.float64)
        given[0] = given[0][:, :, -queries:]
        given = [stream.requires_grad_() for stream in given]
        real = mask.keep_queries(queries)
        outputs, gradients = [], []
        for path in ("cpu", "accelerator"):
            with on_path(path):
                output = made(*given, mask=mask)
            if real is not None:
                output = output.where(real[:, None, :, None], 0)
            outputs.append(output)
            gradients.append(torch.autograd.grad(output.square().sum(), given, allow_unused=True))
        torch.testing.assert_close(*outputs, rtol=1e-9, atol=1e-9)
        for one, other in zip(*gradients, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-9)


def test_a_later_key_does_not_sink_earlier_ones():
    """The features of the last key are exp(100) times all earlier ones, in the same chunk."""
    made = mechanism("performer", Heads(2, 64))
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 2, 50, 64)
    k[:, :, :-1] *= 6
    k[:, :, -1] *= 0.1
    mask = Mask(causal=True)
    exact = copy.deepcopy(made).double()(q.double(), k.double(), v.double(), mask=mask)
    with on_path("accelerator"):
        output = made(q, k, v, mask=mask)
        torch.testing.assert_close(output.double(), exact, rtol=2e-3, atol=2e-3)
        k[:, :, -1] = 0
        changed = made(q, k, v, mask=mask)
    torch.testing.assert_close(changed[:, :, :-1], output[:, :, :-1], rtol=1e-4, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize(("name", "causal"), CASES)
@pytest.mark.parametrize("dim", [3, 40, 256])
def test_any_layout_and_head(name, causal, dim):
    made = _made(name, Heads(2, dim, tokens=20)).double()
    given = _given(made, 20, torch.float64)
    rows = [stream.mT.contiguous().mT for stream in given]
    expanded = [stream[:1].expand_as(stream) for stream in given]
    for streams in (rows, expanded):
        keep = torch.ones(2, 20, dtype=torch.bool)
        keep[0, 3:6] = False
        for mask in (Mask(causal=causal), Mask(keep, causal=causal)):
            expected = made(*streams, mask=mask)
            with on_path("accelerator"):
                output = made(*streams, mask=mask)
            real = torch.ones(2, 20, dtype=torch.bool) if mask.keep is None else mask.keep
            torch.testing.assert_close(output[:, :, real[0]][:1], expected[:, :, real[0]][:1])
            torch.testing.assert_close(output[1], expected[1])


@torch.no_grad()
@pytest.mark.parametrize("name", [n for n in OPTIONS if n not in ("ecoformer", "lisa")])
def test_queries_of_another_sequence(name):
    without = {"conv_kernel": None} if name.startswith("yoso") else {}
    made = _made(name, Heads(2, 8, tokens=20), **without).double()
    torch.manual_seed(0)
    q, k, v = torch.randn(2, 2, 9, 8), *torch.randn(2, 2, 2, 14, 8)
    q, k, v = (stream.double() for stream in (q, k, v))
    mask = Mask(torch.arange(14).expand(2, -1) > torch.tensor([[3], [5]]), cross=True)
    expected = made(q, k, v, mask=mask)
    with on_path("accelerator"):
        torch.testing.assert_close(made(q, k, v, mask=mask), expected)


@pytest.mark.parametrize("name", ["yoso", "yoso-sampled"])
def test_parts_of_a_square_give_the_whole(name, monkeypatch):
    made = _made(name, Heads(2, 8)).double()
    given = [stream.requires_grad_() for stream in _given(made, 23, torch.float64)]
    with on_path("accelerator"):
        whole = made(*given)
        expected = torch.autograd.grad(whole.square().sum(), given)
        for module in (memory, yoso):
            monkeypatch.setattr(module, "parts_of", lambda *_: 4)
        output = made(*given)
        gradients = torch.autograd.grad(output[..., 0].sum() + output.square().sum(), given)
        known = torch.autograd.grad(made(*given)[..., 0].sum(), given)
        with torch.no_grad():
            torch.testing.assert_close(made(*given), whole)
    torch.testing.assert_close(output, whole)
    for gradient, one, other in zip(gradients, expected, known, strict=True):
        torch.testing.assert_close(gradient, one + other)


@pytest.mark.parametrize("shapes", [((2, 3, 5, 4), (4, 6)), ((2, 3, 5, 4), (3, 4, 6))])
def test_products_of_halves_are_wide(shapes):
    torch.manual_seed(0)
    a, b = (torch.randn(shape, dtype=torch.bfloat16) for shape in shapes)
    torch.testing.assert_close(wide_product(a, b), a.float() @ b.float())
    left, right = (part.to("meta").requires_grad_() for part in (a, b))
    product = wide_product(left, right)
    assert (product.dtype, product.shape) == (torch.float32, (2, 3, 5, 6))
    product.sum().backward()
    assert (left.grad.shape, left.grad.dtype) == (a.shape, a.dtype)
    assert (right.grad.shape, right.grad.dtype) == (b.shape, b.dtype)


def test_positive_features_are_those_of_the_weights_written_out():
    """Not causal: two attentions give the sums over all pairs of a key and a feature."""
    made = mechanism("performer", Heads(2, 8), features=5).double()
    q, k, v = _given(made, 30, torch.float64)
    rows, norm = made.directions.rows.double(), 8**-0.25
    scores = (q * norm) @ rows.T, (k * norm) @ rows.T - (k * norm).square().sum(-1, True) / 2
    expected = normalised(scores[0].exp() @ scores[1].exp().mT, v, mask=Mask())
    with on_path("accelerator"):
        torch.testing.assert_close(made(q, k, v), expected)
