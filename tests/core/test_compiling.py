"""``sparing.compiled``: the plain form's answers, its refusals, and how often it compiles."""

from __future__ import annotations

import copy

import pytest
import torch

import sparing
from sparing import Heads, Mask, Unsupported, UsageError, mechanism
from sparing.core.catalogue import MECHANISMS, mechanism_class
from sparing.core.execution import compiling, fusing

# PyTorch's compiler imports its deprecated one, and looks at gradients that it warns of.
pytestmark = [
    pytest.mark.usefixtures("unchecked_shapes"),
    pytest.mark.filterwarnings("ignore:.torch.jit.script_method:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
]

GAINING = [name for name in MECHANISMS.names() if mechanism_class(name).gains_by_compiling]


def streams(made, tokens, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shapes = {"x": (2, tokens, 16)}
    return [
        torch.randn(shapes.get(name, (2, 2, tokens, 8)), generator=generator)
        for name in made.streams
    ]


def require_same(name, tokens, mask):
    plain = mechanism(name, Heads(2, 8, tokens=512)).eval()
    fast = sparing.compiled(copy.deepcopy(plain))
    inputs = streams(plain, tokens)
    with torch.no_grad():
        output, expected = fast(*inputs, mask=mask), plain(*inputs, mask=mask)
    torch.testing.assert_close(output, expected, rtol=1e-4, atol=2e-5)
    gradients = []
    for made in (fast, plain):
        leaves = [tensor.clone().requires_grad_() for tensor in inputs]
        torch.autograd.backward(made(*leaves, mask=mask).square().sum())
        gradients.append([leaf.grad for leaf in leaves])
    torch.testing.assert_close(*gradients, rtol=1e-3, atol=1e-4)


def test_gives_the_plain_answers():
    require_same("linear", 70, Mask())


@pytest.mark.slow
@pytest.mark.parametrize("name", GAINING)
def test_gives_the_plain_answers_everywhere(name):
    keep = torch.ones(2, 150, dtype=torch.bool)
    keep[0, 100:] = keep[1, :30] = False
    causal = [False, True] if mechanism_class(name).traits.causal else [False]
    for mask in [Mask(k, c) for k in (None, keep) for c in causal]:
        require_same(name, 150, mask)


def test_what_gains_by_training_alone_runs_plain_without_gradients(monkeypatch):
    made = sparing.compiled(mechanism("efficient", Heads(2, 8)))
    opened = []
    monkeypatch.setattr(fusing, "_compiled", {})
    monkeypatch.setattr(torch, "compile", lambda rows, **_: opened.append(rows) or rows)
    with torch.no_grad():
        made(*streams(made, 9))
    assert not opened
    made(*(tensor.requires_grad_() for tensor in streams(made, 9)))
    assert opened


def test_a_graph_never_reads_whether_rows_are_compiled(monkeypatch):
    """Reading a context variable would break the graph of a compiled model in two."""
    monkeypatch.setattr(fusing, "is_traced", lambda: True)
    monkeypatch.setattr(fusing, "_open", None)
    assert fusing.fused(torch.exp) is torch.exp


def test_closures_share_one_compiled_function():
    made = sparing.compiled(mechanism("linear", Heads(2, 8)))
    with torch.no_grad():
        made(*streams(made, 33))
        before = len(fusing._compiled)
        for seed in range(3):
            made(*streams(made, 33, seed))
    assert len(fusing._compiled) == before


def test_plain_instances_stay_plain(monkeypatch):
    made = mechanism("linear", Heads(2, 8))
    monkeypatch.setattr(torch, "compile", lambda *_: pytest.fail("compiled without being asked"))
    with torch.no_grad():
        made(*streams(made, 9))
    assert not made.compiled


def test_serves_every_layer_of_a_module():
    layers = torch.nn.ModuleList(sparing.Attention(16, 2, name) for name in ("linear", "softmax"))
    assert sparing.compiled(layers) is layers
    assert [layer.mechanism.compiled for layer in layers] == [True, False]


def test_refuses_what_gains_nothing():
    with pytest.raises(Unsupported, match="Nystrom would gain nothing"):
        sparing.compiled(mechanism("nystrom", Heads(2, 8)))
    with pytest.raises(UsageError, match="no mechanism in Linear"):
        sparing.compiled(torch.nn.Linear(2, 2))


def test_a_missing_compiler_is_named(monkeypatch):
    def broken(_):
        def call(_):
            raise RuntimeError("no C++ compiler")

        return call

    monkeypatch.setattr(compiling.torch, "compile", broken)
    with pytest.raises(Unsupported, match="no C\\+\\+ compiler"):
        sparing.compiled(mechanism("linear", Heads(2, 8)))
