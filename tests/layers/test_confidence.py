"""What a confidence head reads and predicts, and that an encoder uses it where the plan says."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from sparing.core.errors import UsageError
from sparing.core.recording import record
from sparing.layers.confidence import ConfidenceHead, answer_features, confidence_inputs
from sparing.layers.plan import narrowing
from sparing.measure.flops import count_flops
from tests.layers.stacks import apart, encoder, near, packed, whole

LENGTHS = [9, 1, 4, 6, 2, 7, 3]


def test_features_of_an_answer_by_hand():
    logits = torch.tensor([[math.log(3.0), 0.0], [2.0, 2.0]], dtype=torch.float64)
    entropy = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    expected = [[0.75, 0.5, entropy, math.log(3.0)], [0.5, 0.0, math.log(2.0), 0.0]]
    near(answer_features(logits), torch.tensor(expected), within=1e-6)
    near(answer_features(logits.flip(1)), torch.tensor(expected), within=1e-6)


def test_a_new_head_is_never_sure_and_a_fitted_one_is_logistic():
    head = ConfidenceHead(3)
    pooled, logits = torch.randn(5, 3), torch.randn(5, 4)
    assert head(pooled, logits).tolist() == [0.5] * 5
    with torch.no_grad():
        head.linear.weight.normal_()
        head.linear.bias.fill_(0.3)
    score = confidence_inputs(pooled, logits) @ head.linear.weight[0] + 0.3
    near(head(pooled, logits), score.sigmoid(), within=1e-6)
    near(head.double()(pooled.double(), logits.double()), score.sigmoid(), within=1e-6)
    assert count_flops(lambda: head.float()(pooled[:1], logits[:1])) == head.flops
    assert head.bfloat16()(pooled.bfloat16(), logits.bfloat16()).dtype == torch.float32


def _learned(threshold=0.5, **changes):
    """An encoder with random confidence heads, and a plan that uses them."""
    built = encoder()
    built.add_confidences((1, 2, 3))
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for head in built.confidences.values():
            weight = head.linear.weight
            weight.copy_(torch.randn(weight.shape, generator=generator, dtype=torch.float64))
    plan = replace(whole(built), exits=(1, 3), threshold=threshold, confidence="learned", **changes)
    return built.eval(), plan


@torch.no_grad()
def test_inputs_leave_and_go_on_narrower_by_what_was_learned():
    built, plan = _learned()
    rows, layout = packed(LENGTHS)
    trace = built.trace(rows, layout, plan)
    one, two = (built.confidence_head(n)(trace.pooled[n], trace.answers[n]) for n in (1, 2))
    plan = replace(plan, exits=(1,), threshold=float(one.quantile(0.7)))
    plan = narrowing(plan, 0.5, after=2, above=float(two.quantile(0.5)))
    with record(built) as log:
        output = built(rows, layout, plan)
    trace = built.trace(rows, layout, plan)
    confidence = {n: built.confidence_head(n)(trace.pooled[n], trace.answers[n]) for n in (1, 2, 3)}
    for index, one in enumerate(apart(rows, LENGTHS)):
        leaves = [n for n in plan.stops if confidence[n][index] > plan.threshold]
        assert int(output.layers[index]) == min(leaves, default=4)
        narrow = bool(confidence[2][index] > plan.narrow_above) and int(output.layers[index]) > 2
        assert bool(log["narrow"][0][index]) == narrow
        counted = count_flops(lambda: built(*one, plan))  # noqa: B023
        assert float(log["flops"][0][index]) == counted
    assert len(output.layers.unique()) > 1
    assert 0 < int(log["narrow"][0].sum()) < int((output.layers > 2).sum())
    by_probability = built(rows, layout, replace(plan, confidence="softmax"))
    assert not torch.equal(by_probability.layers, output.layers)


@torch.no_grad()
def test_what_is_not_a_number_is_never_sure():
    built, plan = _learned(0.0)
    rows, layout = packed(LENGTHS)
    rows[0, 0] = torch.nan
    assert built(rows, layout, plan).layers.tolist() == [4, 1, 1, 1, 1, 1, 1]


def test_confidences_that_there_are_not():
    built = encoder()
    assert not built.confidences
    assert not any("confidence" in name for name in built.state_dict())
    plan = replace(whole(built), exits=(1, 3), threshold=0.5, confidence="learned")
    built.add_confidences((1,))
    with pytest.raises(UsageError, match=r"confidence after layer 3: sparing.fit_confidence"):
        built.check_runs(plan)
    built.check_runs(replace(plan, exits=(1,)))
    built.check_runs(replace(plan, threshold=1.0))
    with pytest.raises(UsageError, match="no exit head after layer 7"):
        built.add_confidences((7,))
