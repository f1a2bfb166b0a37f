"""One module decides which form of a mechanism serves a call."""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest
import torch

from sparing.core.catalogue import mechanism
from sparing.core.errors import DeviceFull, Unsupported, UsageError
from sparing.core.execution.path import Call, PathFailed, choose, forced_path, refusal
from sparing.core.heads import Heads
from sparing.core.mechanism import Mechanism
from sparing.core.traits import Traits
from sparing.core.workload import Cost
from sparing.testing.paths import on_path

HEADS = Heads(2, 64)
TRAITS = Traits(paper="none", year=2026, causal=True, padding=True)


class Doubling(Mechanism):
    """Gives other multiples of v on other paths."""

    traits = TRAITS
    accelerated = ("flex", "accelerator")

    def mix(self, q, k, v, *, mask):
        return v

    def mix_accelerator(self, q, k, v, *, mask):
        return 2 * v

    def mix_flex(self, q, k, v, *, mask):
        raise PathFailed from RuntimeError("no compiler\nmany lines")

    def limits(self, path, call):
        return "it is short" if path == "accelerator" and call.queries < 3 else ""

    def cost(self, work):
        return Cost(0, 0, 0)


def _streams(tokens=4, device="cpu"):
    return (torch.ones(1, 2, tokens, 64, device=device),) * 3


def test_a_processor_takes_its_own_form():
    made = mechanism("linear", HEADS)
    assert choose(made, Call()).path == "cpu"
    assert torch.equal(Doubling(HEADS)(*_streams()), torch.ones(1, 2, 4, 64))


def test_the_first_form_without_a_limit_serves_and_the_others_say_why_not():
    made = Doubling(HEADS)
    choice = choose(made, Call("mps", queries=4, keys=4))
    assert choice.path == "accelerator"
    assert choice.refused == {"flex": "FlexAttention's kernels need a CUDA device, not mps"}
    choice = choose(made, Call("mps", queries=2, keys=2))
    assert choice.path == "cpu"
    assert choice.refused["accelerator"] == "it is short"


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (Call("cuda", torch.float64), "no float64"),
        (Call("cuda", dim=3), "heads of 16"),
        (Call("cuda", dim=40), "heads of 16"),
        (Call("cuda", dim=512), "heads of 16"),
        (Call("xpu"), "need a CUDA device, not xpu"),
        (Call("cuda", traced="exported"), "exported graph"),
        (Call("cpu", recorded=True), "no gradients"),
    ],
)
def test_what_flex_attention_cannot_do_is_named(call, reason):
    assert reason in refusal(Doubling(HEADS), "flex", call)


def test_a_forced_path_is_taken_and_only_inside():
    made = Doubling(HEADS)
    with on_path("accelerator"):
        assert forced_path() == "accelerator"
        assert torch.equal(made(*_streams()), 2 * torch.ones(1, 2, 4, 64))
    assert forced_path() is None
    assert torch.equal(made(*_streams()), torch.ones(1, 2, 4, 64))


def test_a_forced_path_that_cannot_serve_is_refused_with_the_reason():
    with on_path("accelerator"), pytest.raises(Unsupported, match="it is short"):
        Doubling(HEADS)(*_streams(2))
    with on_path("fla"), pytest.raises(Unsupported, match="has no such form"):
        Doubling(HEADS)(*_streams())
    with on_path("reference"), pytest.raises(Unsupported, match="no slow form"):
        Doubling(HEADS)(*_streams())
    with pytest.raises(UsageError, match="did you mean 'accelerator'"), on_path("acelerator"):
        pass


def test_a_kernel_that_fails_is_warned_of_once_and_the_next_form_serves(monkeypatch, caplog):
    monkeypatch.setattr("sparing.core.execution.path._broken", {})
    monkeypatch.setattr("sparing.core.execution.path._flex_refusal", lambda call: "")
    made = Doubling(HEADS)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert made(*_streams(device="meta")).device.type == "meta"
    assert [record.getMessage() for record in caplog.records] == [
        "the path 'flex' does not work here and is not used again: no compiler"
    ]
    call = Call("meta", queries=4, keys=4)
    assert choose(made, call).refused["flex"] == "it failed in this process: no compiler"


def test_a_forced_kernel_that_fails_is_an_error(monkeypatch):
    monkeypatch.setattr("sparing.core.execution.path._flex_refusal", lambda call: "")
    with on_path("flex"), pytest.raises(Unsupported, match="does not work here: no compiler"):
        Doubling(HEADS)(*_streams())


def test_the_slow_form_can_be_forced():
    made = mechanism("linear", HEADS)
    streams = tuple(torch.randn(2, 2, 5, 64, dtype=torch.float64) for _ in range(3))
    with on_path("reference"):
        slow = made(*streams)
    assert torch.allclose(slow, made(*streams), rtol=1e-9)


class Large(Doubling):
    """Never fits."""

    def mix_accelerator(self, q, k, v, *, mask):
        raise torch.OutOfMemoryError("tried to allocate")

    def cost(self, work):
        return Cost(0, 0, work.batch * 2**32)


def test_a_call_that_does_not_fit_says_what_it_needs():
    with pytest.raises(DeviceFull, match="meta: 1 rows of 4 tokens need about 4 GiB"):
        Large(HEADS)(*_streams(device="meta"))


def test_weights_elsewhere_than_the_inputs_are_named():
    made = mechanism("linformer", Heads(2, 64, tokens=4))
    with pytest.raises(UsageError, match="its weights are on cpu, the inputs on meta"):
        made(*_streams(device="meta"))


COMPILED = """
import torch
from sparing.core.catalogue import mechanism
from sparing.core.heads import Heads
from sparing.core.mask import Mask

for name in ("softmax", "uniform", "linear"):
    made = torch.compile(mechanism(name, Heads(2, 64)), backend="eager", fullgraph=True)
    made(*(torch.ones(1, 2, 40, 64, device="meta"),) * 3, mask=Mask(causal=True))
"""


@pytest.mark.slow
def test_the_choice_breaks_no_graph():
    """In a process of its own: checks of annotations cannot be compiled."""
    subprocess.run([sys.executable, "-c", COMPILED], check=True)
