"""Gates: open ones change nothing, closed tokens are not computed, soft ones learn."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from sparing.core.errors import UsageError
from sparing.core.recording import record
from sparing.layers.encoder import AdaptiveEncoder
from sparing.layers.gates import GATES, SkimGate, ThresholdGate, new_gate, open_tokens
from sparing.layers.heads import BodyForm, HeadForm
from sparing.layers.packing import Packed
from sparing.layers.plan import narrowing
from sparing.measure.flops import count_flops
from tests.layers.stacks import SIZES, apart, encoder, form, near, packed, whole

LENGTHS = [9, 1, 4, 6, 2, 7, 3]
LEARNED = [kind for kind in GATES if kind != "random"]


def _gated(kind, layers=(1, 3), seed=5):
    """An encoder with gates that close on some tokens, and the plan that uses them."""
    built = encoder()
    built.add_gates(kind, layers)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for gate in built.gates.values():
            if kind == "threshold":
                gate.part.fill_(0.9 / gate.RATE)
            elif kind == "skim":
                weight = gate.fall.weight
                weight.copy_(torch.randn(weight.shape, generator=generator, dtype=torch.float64))
                gate.fall.bias.zero_()
            else:
                gate.share.fill_(0.6)
    return built.eval(), replace(whole(built), gated=True)


def _open(built, kind):
    with torch.no_grad():
        for gate in built.gates.values():
            if kind == "threshold":
                gate.part.zero_()
            elif kind == "skim":
                gate.fall.bias.fill_(1e6)
            else:
                gate.share.fill_(1.0)


@pytest.mark.parametrize("kind", GATES)
@torch.no_grad()
def test_open_gates_are_the_dense_model(kind):
    built, plan = _gated(kind)
    rows, layout = packed(LENGTHS)
    dense = built(rows, layout, whole(built)).logits
    assert not torch.allclose(built(rows, layout, plan).logits, dense, atol=1e-3)
    _open(built, kind)
    near(built(rows, layout, plan).logits, dense, within=1e-10)
    if kind != "threshold":  # a sigmoid is never quite open
        near(built.trace(rows, layout, plan, soft=True).answers[4], dense, within=1e-10)


@pytest.mark.parametrize("kind", LEARNED)
@torch.no_grad()
def test_a_gated_batch_is_its_inputs_one_by_one_and_counts_what_it_executes(kind):
    built, plan = _gated(kind)
    plan = replace(plan, exits=(2,), threshold=0.6)
    rows, layout = packed(LENGTHS)
    with record(built) as log:
        together = built(rows, layout, plan)
    for index, one in enumerate(apart(rows, LENGTHS)):
        near(together.logits[index : index + 1], built(*one, plan).logits)
        counted = count_flops(lambda: built(*one, plan))  # noqa: B023
        assert float(log["flops"][0][index]) == counted
    assert len(together.layers.unique()) > 1


@pytest.mark.parametrize("kind", GATES)
@torch.no_grad()
def test_tokens_that_are_not_let_through_are_not_computed(kind):
    built, plan = _gated(kind)
    rows, layout = packed(LENGTHS)
    lengths = built.trace(rows, layout, plan).lengths
    first, second, last = (int(lengths[number].sum()) for number in (0, 1, 3))
    assert first > second >= int(lengths[2].sum()) >= last
    assert bool((lengths[3] >= 1).all())
    dear = count_flops(lambda: built(rows, layout, whole(built)))
    assert count_flops(lambda: built(rows, layout, plan)) < dear
    with record(built) as log:
        built(rows, layout, plan)
    assert len(log["kept"]) == 2
    assert bool(log["kept"][0][layout.starts].all())


@torch.no_grad()
def test_a_soft_pass_of_sure_gates_is_dropping():
    """At 0 and 1 the weights on attention do what leaving tokens out does."""
    rows, layout = packed(LENGTHS)
    for kind in LEARNED:
        built, plan = _gated(kind)
        for gate in built.gates.values():
            gate.soft = lambda odds: (odds > 0).to(odds.dtype)
        hard, soft = built.trace(rows, layout, plan), built.trace(rows, layout, plan, soft=True)
        for number, answer in hard.answers.items():
            near(soft.answers[number], answer)
        assert int(soft.open[0].sum()) == int(hard.lengths[1].sum())
        assert int(soft.open[1].sum()) == int(hard.lengths[3].sum())
        assert bool((soft.open[1] <= soft.open[0]).all()), "what is closed stays so"


@pytest.mark.parametrize("kind", LEARNED)
def test_gradients_reach_the_gates_from_the_answer_and_from_the_share(kind):
    built, plan = _gated(kind)
    rows, layout = packed(LENGTHS)
    trace = built.trace(rows, layout, plan, soft=True)
    for value in (trace.answers[4].square().sum(), trace.open[-1].mean()):
        built.zero_grad()
        value.backward(retain_graph=True)
        for gate in built.gates.values():
            for parameter in gate.parameters():
                assert bool((parameter.grad != 0).any())


def test_noise_is_drawn_in_training_only():
    gate = SkimGate(4, 1).double()
    odds = torch.zeros(2000, dtype=torch.float64)
    assert 800 < int(gate.soft(odds).sum()) < 1200
    gate.eval()
    assert int(gate.soft(odds).sum()) == 0
    opened = gate(torch.randn(5, 4, dtype=torch.float64), None)
    assert bool((opened > 0).all()), "training begins at the dense model"


def test_thresholds_are_in_even_shares():
    gate = ThresholdGate(4, 2).double()
    assert gate.threshold.item() == pytest.approx(0.1)
    received = torch.tensor([0.05, 0.1, 0.2, torch.nan], dtype=torch.float64)
    odds = gate(torch.zeros(4, 4, dtype=torch.float64), received)
    assert open_tokens(odds, Packed(torch.tensor([1, 3]))).tolist() == [True, True, True, False]
    assert gate.soft(odds)[1].item() == pytest.approx(0.5)


def test_gates_that_cannot_be():
    built = encoder()
    with pytest.raises(UsageError, match=r"has no gates: encoder\.add_gates"):
        built.check_runs(replace(whole(built), gated=True))
    with pytest.raises(UsageError, match=r"kinds threshold, skim, random, not 'skm'.*skim"):
        built.add_gates("skm", (1,))
    for layers in ((), (0,), (1, 4)):
        with pytest.raises(UsageError, match="gates come after layers 1 to 3"):
            built.add_gates("skim", layers)
    averaging = AdaptiveEncoder([SIZES] * 2, form(), HeadForm(BodyForm(12), 3, pooling="others"))
    with pytest.raises(UsageError, match="reads all tokens"):
        averaging.add_gates("skim", (1,))
    with pytest.raises(UsageError, match="by gates, or by tokens_kept"):
        replace(whole(built), gated=True, tokens_kept=0.5)
    built, plan = _gated("skim")
    with pytest.raises(UsageError, match="one width for all"):
        built.trace(*packed([3]), narrowing(plan, 0.5, after=1, above=0.5), soft=True)
    assert new_gate("random", 4, 1).flops_per_token == 0
