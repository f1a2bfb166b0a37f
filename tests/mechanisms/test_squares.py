"""Forms for accelerators over all pairs: parts by memory, other shapes, half precision's limits."""

from __future__ import annotations

import pytest
import torch

from sparing import Heads, Mask, mechanism
from sparing.mechanisms.shared import memory
from sparing.mechanisms.shared.pairs.squares import distance_factors
from sparing.testing.mathematics import _LargestTensor
from sparing.testing.paths import on_path

CASES = (
    ("kernel", {}),
    ("kernel", {"kernel": "inverse_quadratic"}),
    ("kernel", {"kernel": "module"}),
    ("kernel", {"kernel": "dot", "scale": 0.7}),
    ("gaussian_keys", {"components": 3, "narrowing": 1.7}),
    ("gaussian_keys", {"mixture": "hard", "components": 3, "narrowing": 1.7}),
    ("additive", {"hidden_dim": 3}),
)
OF_ONE_SEQUENCE = (("difference", {"threshold": 0.8}), ("adaptive", {"score": 0.3}))


def built(name, options, dim=4, dtype=torch.float64):
    made = mechanism(name, Heads(2, dim), **options)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.1)
    return made.to(dtype).eval()


def drawn(queries, keys=None, dim=4, dtype=torch.float64):
    generator = torch.Generator().manual_seed(5)
    sizes = (queries, keys or queries, keys or queries)
    return [
        torch.randn(2, 2, n, dim, generator=generator, dtype=torch.float64).to(dtype) for n in sizes
    ]


def inputs(made, queries, keys=None, dim=4):
    given = drawn(queries, keys, dim)
    tokens = torch.linspace(-1, 1, 2 * queries * 2 * dim, dtype=torch.float64)
    x = [tokens.sin().view(2, queries, 2 * dim)] if "x" in made.streams else []
    return [*given, *x]


def padded(keys):
    keep = torch.ones(2, keys, dtype=torch.bool)
    keep[0, keys // 2 :] = keep[1, : keys // 4] = False
    return keep


def masks(made, queries, keys):
    for causal in (False, True) if made.traits.causal else (False,):
        if queries == keys or causal or made.traits.cross:
            yield Mask(causal=causal)
            yield Mask(padded(keys), causal)


def both(made, given, mask):
    """Output and gradients on both paths."""
    results = []
    for path in ("cpu", "accelerator"):
        leaves = [stream.detach().clone().requires_grad_() for stream in given]
        with on_path(path):
            output = made(*leaves, mask=mask)
        real = mask.keep_queries(output.shape[2])
        output = output if real is None else output.where(real[:, None, :, None], 0)
        weights = torch.linspace(-1, 1, output.numel(), dtype=output.dtype).view_as(output)
        chosen = [*leaves, *made.parameters()]
        taken = torch.autograd.grad((output * weights).sum(), chosen, allow_unused=True)
        results.append((output.detach(), taken))
    return results


def require_same(made, given, mask):
    (expected, known), (output, gradients) = both(made, given, mask)
    torch.testing.assert_close(output, expected, rtol=1e-10, atol=1e-10)
    for got, chosen in zip(gradients, known, strict=True):
        assert (got is None) == (chosen is None)
        if got is not None:
            torch.testing.assert_close(got, chosen, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("dim", [3, 40, 256])
@pytest.mark.parametrize(("name", "options"), [*CASES, *OF_ONE_SEQUENCE])
def test_any_width_and_fewer_queries_or_other_keys(name, options, dim):
    made = built(name, options, dim)
    for queries, keys in ((1, 1), (9, 9), (4, 9), (9, 4)):
        for mask in masks(made, queries, keys):
            if not (mask.causal and queries > keys) and (
                queries == keys or "x" not in made.streams
            ):
                require_same(made, inputs(made, queries, keys, dim), mask)


@pytest.mark.parametrize(("name", "options"), [*CASES, *OF_ONE_SEQUENCE])
def test_streams_that_are_views(name, options):
    made = built(name, options)
    for mask in masks(made, 9, 9):
        given = inputs(made, 9)
        given[0] = given[0].transpose(1, 2).contiguous().transpose(1, 2)
        given[1] = given[1][:1].expand(2, -1, -1, -1)
        given[2] = torch.cat([given[2], given[2]], 3)[..., ::2]
        outputs = []
        for path in ("cpu", "accelerator"):
            with on_path(path), torch.inference_mode():
                output = made(*given, mask=mask)
            real = mask.keep_queries(9)
            outputs.append(output if real is None else output.where(real[:, None, :, None], 0))
        torch.testing.assert_close(*outputs, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("parts", [2, 4, 1000])
@pytest.mark.parametrize(("name", "options"), CASES)
def test_parts_do_not_matter(name, options, parts, monkeypatch):
    requests = []
    monkeypatch.setattr(memory, "parts_of", lambda *given: requests.append(given) or parts)
    made = built(name, options)
    for queries, keys in ((13, 13), (5, 13), (5, 3)):
        for mask in masks(made, queries, keys):
            if not mask.causal or queries <= keys:
                require_same(made, inputs(made, queries, keys), mask)
    assert requests


@pytest.mark.parametrize(("name", "options"), [CASES[0], CASES[2], CASES[5], CASES[6]])
def test_gradients_of_several_parts_keep_no_square(name, options, monkeypatch):
    made, given = built(name, options), [t.requires_grad_() for t in drawn(64)]

    def largest_saved(parts):
        monkeypatch.setattr(memory, "parts_of", lambda *_: parts)
        sizes = [0]

        def note(tensor):
            sizes.append(tensor.numel())
            return tensor

        hooks = torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor)
        with hooks, on_path("accelerator"):
            made(*given)
        return max(sizes)

    assert largest_saved(1) >= 4 * 64 * 64 > largest_saved(8)


def test_a_device_takes_as_few_parts_as_fit_a_share_of_its_free_memory(monkeypatch):
    free = memory.SMALL * 4
    monkeypatch.setattr(memory, "free_bytes", lambda device: free)
    cuda = torch.device("cuda")
    most = int(free * memory.SHARE)
    assert [memory.parts_of(n, cuda) for n in (1, most, most + 1, 10 * most)] == [1, 1, 2, 10]
    assert memory.parts_of(10 * most, torch.device("cpu")) == 1
    assert memory.parts_of(10 * most, torch.device("meta")) == 1
    monkeypatch.setattr(memory, "free_bytes", lambda device: 0)
    assert memory.parts_of(memory.SMALL, cuda) == 1


def test_soft_mixtures_store_no_square():
    made = built("gaussian_keys", {}, 16, torch.float32)
    q, k, v = drawn(1000, dim=16, dtype=torch.float32)
    with torch.no_grad(), on_path("accelerator"), _LargestTensor() as largest:
        made(q, k, v)
    assert largest.elements < 2 * 2 * 1000 * 100


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_distances_of_near_vectors_are_right_in_half_precision(dtype):
    q = drawn(20, dim=64)[0].to(dtype) * 4
    k = (q + drawn(20, dim=64)[1].to(dtype) / 4).to(dtype)
    exact = torch.cdist(q.double(), k.double()).square()
    left, right = distance_factors(q, k)
    assert left.dtype == dtype
    near = exact.diagonal(dim1=2, dim2=3)
    assert near.max() < exact.mean() / 100
    apart = (left.double() @ right.double().mT).diagonal(dim1=2, dim2=3)
    torch.testing.assert_close(apart, near, rtol=4e-3, atol=0)
    squares = (t.square().sum(-1) for t in (q, k))  # rounded, as a plain product would have them
    plain = sum(squares).double() - 2 * (q.double() * k.double()).sum(-1)
    assert (plain - near).abs().max() > 10 * (apart - near).abs().max()


@pytest.mark.parametrize(("name", "options"), [*CASES[:2], *CASES[4:6]])
@pytest.mark.parametrize("scale", [1.0, 60.0])
def test_float16_holds_long_vectors(name, options, scale):
    """Squares of such vectors are far above 65,504."""
    made = built(name, options, 64, torch.float16)
    given = [(t * scale).half() for t in drawn(20, dim=64)]
    assert scale == 1 or given[0].double().square().sum(-1).max() > 200_000
    leaves = [t.requires_grad_() for t in given]
    with on_path("accelerator"):
        output = made(*leaves)
    taken = torch.autograd.grad(output.float().sum(), [*leaves, *made.parameters()])
    assert all(torch.isfinite(gradient).all() for gradient in taken)
    exact = made.double()(*(t.detach().double() for t in given))
    torch.testing.assert_close(output.double(), exact, rtol=0.02, atol=0.01 * scale)
