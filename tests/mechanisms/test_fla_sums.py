"""Causal sums by flash-linear-attention: its limits, and its kernels where Triton can run.

Triton's interpreter runs the kernels on a CPU. It cannot measure, so that the kernels' variants are
not compared there: one of them is taken. It also counts loops with plain numbers.
"""

from __future__ import annotations

import builtins
import dataclasses
import importlib.util
import os
import sys
import types

import pytest
import torch

from sparing import Heads, Mask, Unsupported, mechanism
from sparing.core.execution.path import Call, PathFailed
from sparing.mechanisms.shared.sums import feature_sums, fla_sums, past
from sparing.testing.paths import on_path

NAMES = ("linear", "kerformer", "efficient", "cosformer")
ALL = (
    *((name, {}) for name in NAMES),
    ("performer", {"features": 270}),
    ("performer", {"features": 21}),
    ("performer", {"feature_map": "relu"}),
    ("random_features", {"floor": 0.3}),
    ("random_features", {"gate": True}),
    ("random_features", {"feature_map": "positive"}),
    ("random_features", {"feature_map": "positive", "gate": True}),
)
GOOD = Call(device="cuda", dtype=torch.bfloat16, dim=64, causal=True)
KERNELS = all(importlib.util.find_spec(name) for name in ("triton", "fla", "einops"))
INTERPRETED = KERNELS and os.environ.get("TRITON_INTERPRET") == "1"  # Triton reads it early
needs_kernels = pytest.mark.skipif(
    not INTERPRETED, reason="needs Triton, fla-core and TRITON_INTERPRET=1"
)


@pytest.fixture(
    params=["written out", pytest.param("interpreted", marks=[pytest.mark.slow, needs_kernels])]
)
def kernels(request, monkeypatch):
    """The kernels, interpreted, or their recurrence, step by step."""
    if request.param == "written out":
        stand_in = types.SimpleNamespace(chunk_simple_gla=recurrence)
        monkeypatch.setitem(sys.modules, "fla.ops.simple_gla", stand_in)
        return
    tuning = importlib.import_module("triton.runtime.autotuner")
    monkeypatch.setattr(tuning.Autotuner, "_bench", lambda *_, **__: [1.0] * 3)
    importlib.import_module("fla.ops.simple_gla")
    for name in ("chunk_h", "chunk_o"):
        module = importlib.import_module(f"fla.ops.common.{name}")
        monkeypatch.setattr(module, "range", counted, raising=False)


def recurrence(q, k, v, *, g, scale, initial_state):
    """What fla documents: S = exp(g) S + k v, out = scale q S; each is (batch, tokens, heads, ...).

    As in the kernels, the output has the type of q, and gates get no gradient from here.
    """
    batch, tokens, heads, features = k.shape
    state = torch.zeros(batch, heads, features, v.shape[-1])
    state = state if initial_state is None else initial_state
    outputs = []
    for token in range(tokens):
        if g is not None:
            state = state * g[:, token].exp()[..., None, None]
        state = state + k[:, token, :, :, None].float() * v[:, token, :, None].float()
        outputs.append((q[:, token, :, None].float() @ state)[:, :, 0] * scale)
    return torch.stack(outputs, 1).to(q.dtype), None


class Counted(int):
    """A number that has ``to``, as those of compiled loops."""

    def to(self, _):
        return int(self)


def counted(*arguments):
    return map(Counted, builtins.range(*arguments))


def drawn(queries, keys, *, dim=16, tokens_first=False, dtype=torch.float32):
    generator = torch.Generator().manual_seed(5)
    made = [torch.randn(2, 2, n, dim, generator=generator) for n in (queries, keys, keys)]
    if tokens_first:
        made = [part.transpose(1, 2).contiguous().transpose(1, 2) for part in made]
    return [part.to(dtype).requires_grad_() for part in made]


@pytest.mark.parametrize("name", NAMES)
def test_limits(name):
    made = mechanism(name, Heads(2, 64, tokens=512))
    assert made.limits("fla", GOOD) == ""
    assert made.limits("accelerator", GOOD) == ""
    half = Call(device="cuda", dtype=torch.float16, dim=64, causal=True)
    assert ("float16" in made.limits("fla", half)) == (name == "efficient")
    single = Call(device="cuda", dtype=torch.float32, dim=64, causal=True)
    assert "TF32" in made.limits("fla", single)
    wide = Call(device="cuda", dtype=torch.bfloat16, dim=256, causal=True)
    assert made.limits("fla", wide) == ""
    traced = Call(device="cuda", dtype=torch.bfloat16, dim=64, causal=True, traced="compiled")
    assert "graph" in made.limits("fla", traced)


@pytest.mark.parametrize(("name", "options"), ALL[len(NAMES) :])
def test_limits_of_random_features(name, options):
    made = mechanism(name, Heads(2, 64), **options)
    assert made.limits("fla", GOOD) == ""
    assert "range" in made.limits("fla", dataclasses.replace(GOOD, dtype=torch.float16))
    assert "TF32" in made.limits("fla", dataclasses.replace(GOOD, dtype=torch.float32))
    many = mechanism(name, Heads(2, 64), **{**options, "features": 514})
    assert "up to 512 features" in many.limits("fla", GOOD)


def test_single_precision_is_served_where_tf32_is_allowed(monkeypatch):
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "high")
    single = Call(device="cuda", dtype=torch.float32, dim=64, causal=True)
    assert mechanism("linear", Heads(2, 64)).limits("fla", single) == ""


@pytest.mark.parametrize(
    ("name", "options"),
    [("efficient", {"normalisation": "scaling"}), ("kerformer", {"key_map": "none"})],
)
def test_features_of_both_signs_are_refused(name, options):
    assert "signs" in mechanism(name, Heads(2, 64), **options).limits("fla", GOOD)


@pytest.mark.skipif(KERNELS, reason="the kernels are here")
def test_missing_kernels_are_a_failed_path():
    q, k, v = drawn(4, 4)
    with pytest.raises(PathFailed) as failure:
        fla_sums.past_by_fla(q, k, v)
    assert isinstance(failure.value.__cause__, ImportError)


def test_nothing_of_it_is_imported_before_a_call():
    with on_path("fla"), pytest.raises(Unsupported, match="CUDA"):
        mechanism("linear", Heads(2, 16))(*drawn(4, 4), mask=Mask(causal=True))
    assert KERNELS or "fla" not in sys.modules


@pytest.mark.usefixtures("kernels", "unchecked_shapes")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("tokens_first", [False, True])
@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (70, 70), (30, 100)])
@pytest.mark.parametrize(("name", "options"), ALL)
def test_the_kernels_give_what_the_processor_path_gives(name, options, queries, keys, tokens_first):
    made = mechanism(name, Heads(2, 16, tokens=128), **options)
    given = drawn(queries, keys, tokens_first=tokens_first)
    keep = torch.ones(2, keys, dtype=torch.bool)
    keep[0, :10] = keep[1, 90:] = False
    for mask in (Mask(causal=True), Mask(keep, causal=True)) if keys > 1 else (Mask(causal=True),):
        real = mask.keep_queries(queries)
        expected = made(*given, mask=mask)
        shown = torch.ones_like(expected) if real is None else real[:, None, :, None]
        clean = given
        if mask.keep is not None:
            clean = [given[0], *(part.where(keep[:, None, :, None], 0) for part in given[1:])]
        output = made.mix_fla(*clean, mask=mask) * shown
        torch.testing.assert_close(output, expected * shown, atol=2e-5, rtol=1e-4)
        weights = torch.randn(output.shape, generator=torch.Generator().manual_seed(0)) * shown
        known = torch.autograd.grad((expected * weights).sum(), given)
        gradients = torch.autograd.grad((output * weights).sum(), given)
        torch.testing.assert_close(gradients, known, atol=1e-4, rtol=1e-3)


@pytest.mark.usefixtures("kernels")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("queries", [100, 60])
@pytest.mark.parametrize(
    ("slope", "jump"), [(0.0, 0.0), (0.05, 0.0), (3.0, 0.0), (-3.0, 0.0), (500.0, 0.0), (1.0, 1e4)]
)
def test_weights_of_any_range_keep_their_sums(slope, jump, queries):
    q, k, v = (part.detach() for part in drawn(queries, 100))
    logs = torch.randn(2, 1, 100, generator=torch.Generator().manual_seed(2)) * 5
    logs = logs + slope * torch.arange(100) + jump * (torch.arange(100) >= 64)
    logs[0, :, :45] = logs[1, :, 20:30] = logs[1, :, 97:] = past.HIDDEN
    q, k = q.exp(), k.exp()
    expected = past.mix_past(
        q.double(), k.double(), v.double(), past.Weights(logs.double(), floor=0.01)
    )
    output = fla_sums.mix_past_by_fla(q, k, v, past.Weights(logs, floor=0.01))
    seen = slice(max(0, 45 - (100 - queries)), None)  # before, the first row sees nothing
    torch.testing.assert_close(output[0, :, seen], expected[0, :, seen].float())
    torch.testing.assert_close(output[1], expected[1].float())


@pytest.mark.usefixtures("kernels")
@pytest.mark.filterwarnings("ignore")
def test_second_derivatives_are_refused():
    output = fla_sums.past_by_fla(*(given := drawn(20, 20)))
    with pytest.raises(Unsupported, match="second derivatives"):
        torch.autograd.grad(output.sum(), given, create_graph=True)


@pytest.mark.usefixtures("kernels")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_kernels_sum_in_each_type(dtype):
    q, k, v = (part.detach() for part in drawn(70, 100, dtype=dtype))
    expected = feature_sums.over_past(q.double(), k.double(), v.double())
    gap = (fla_sums.past_by_fla(q, k, v).double() - expected).abs().max()
    assert gap < 4 * torch.finfo(dtype).eps * expected.abs().max()
