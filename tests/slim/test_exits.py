"""What is decided from one pass is what the model does with that plan, example by example."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
import torch

import sparing
from sparing.core.errors import UsageError
from sparing.layers.plan import full_plan, narrowed, narrowing
from sparing.measure.flops import model_flops
from sparing.slim.search.exits import (
    Outcomes,
    decide,
    dense_flops,
    leave_at,
    left_at_random,
    outcomes,
    score,
    token_counts,
)
from sparing.slim.search.frontier import NARROW_ABOVE, Variant, decided, random_control, survey
from sparing.tasks import Examples, Task
from sparing.transfer.adapting.adapt import adapt
from tests.transfer.classifiers import dense, images, near

LENGTHS = [9, 1, 4, 12, 7, 7, 2, 5, 3, 11, 6, 8]


def _task(family="bert"):
    labels = torch.arange(len(LENGTHS)) % 3
    if family == "bert":
        generator = torch.Generator().manual_seed(2)
        rows = [torch.randint(3, 50, (length,), generator=generator) for length in LENGTHS]
        split, kind = Examples("input_ids", rows, labels), "tokens"
    else:
        pixels = images(len(LENGTHS))["pixel_values"]
        split, kind = Examples("pixel_values", pixels, labels), "image"
    return Task("small", kind, split, split, split, ("a", "b", "c"), 12, "none", "generated")


def _adaptive(family="bert", dtype=torch.float64, exits=None):
    """An adaptive model whose exits disagree, and are sure of some inputs only."""
    adaptive = adapt(dense(family, dtype=dtype), exits)
    with torch.no_grad():
        for number, head in enumerate(adaptive.encoder.heads.values()):
            head.classifier.weight.mul_(2)
            head.classifier.bias[number % 3] += 0.5
    return adaptive


def _plan(adaptive, **changes):
    return replace(narrowed(adaptive.encoder.sizes, 0.75), **changes)


@torch.no_grad()
def _run(adaptive, task, plan):
    """What the model itself does and records, one unpadded example after the other."""
    adaptive.plan = plan
    rows = []
    for index in range(len(task.test)):
        batch = task.collate([task.test[index]])
        batch.pop("labels")
        with sparing.record(adaptive) as log:
            answer = adaptive(**batch)
        rows.append((answer.logits[0], int(answer.layers), float(log["encoder/flops"][0])))
    logits, layers, flops = zip(*rows, strict=True)
    return torch.stack(logits).float(), torch.tensor(layers), torch.tensor(flops).double()


def _assert_is_real(decision, adaptive, task):
    logits, layers, flops = _run(adaptive, task, decision.plan)
    assert torch.equal(decision.layers, layers)
    near(decision.logits, logits, within=1e-5)
    assert torch.equal(decision.answers, logits.argmax(-1))
    assert torch.equal(decision.flops, flops)


@pytest.mark.parametrize("family", ["bert", "vit"])
@pytest.mark.parametrize("changes", [{}, {"tokens_kept": 0.5}, {"tokens_above": 0.8}])
def test_a_decision_is_what_the_model_does(family, changes):
    adaptive, task = _adaptive(family), _task(family)
    exit_outcomes = outcomes(adaptive, task, task.test, _plan(adaptive, **changes), batch_size=5)
    used = Counter()
    for threshold, first in ((0.5, 1), (0.7, 1), (0.8, 3), (0.95, 2), (1.0, 1), (0.0, 3)):
        decision = decide(exit_outcomes, threshold, first)
        _assert_is_real(decision, adaptive, task)
        used.update(decision.layers.tolist())
        assert bool((decision.layers >= min(first, 4)).all())
    assert used.keys() == {2, 3, 4}, "this test needs inputs that leave everywhere"


@pytest.mark.parametrize("family", ["bert", "vit"])
@pytest.mark.parametrize("changes", [{}, {"tokens_kept": 0.5, "tokens_after": 3}])
def test_a_decision_on_widths_is_what_the_model_does(family, changes):
    adaptive, task = _adaptive(family), _task(family)
    plan = narrowing(_plan(adaptive, **changes), 0.4, after=2, above=0.7)
    exit_outcomes = outcomes(adaptive, task, task.test, plan, batch_size=5)
    for threshold, first, layers, above in (
        (1.0, 1, 4, None),
        (1.0, 1, 4, 0.6),
        (0.8, 1, 4, 0.5),
        (0.8, 3, 4, 0.6),
        (0.8, 3, 3, 0.6),
        (0.6, 1, 2, 0.5),
        (0.6, 3, 4, 1.0),
    ):
        decision = decide(exit_outcomes, threshold, first, layers, above)
        _assert_is_real(decision, adaptive, task)
        assert decision.plan.narrow_above == (1.0 if layers == 2 else (above or 0.7))
    some = decide(exit_outcomes, 0.8, 3, narrow_above=0.6)
    assert 0 < int(some.narrow.sum()) < len(LENGTHS), "this test needs inputs that differ"


def test_random_ones_go_on_narrower_as_often():
    adaptive, task = _adaptive(), _task()
    plan = narrowing(_plan(adaptive), 0.4, after=2, above=0.6)
    exit_outcomes = outcomes(adaptive, task, task.test, plan)
    decision = decide(exit_outcomes, 0.8, 3)
    pairs = Counter(zip(decision.layers.tolist(), decision.narrow.tolist(), strict=True))
    controls = [left_at_random(exit_outcomes, decision, seed) for seed in range(5)]
    for control in controls:
        mine = Counter(zip(control.layers.tolist(), control.narrow.tolist(), strict=True))
        assert mine == pairs
        for index, layer in enumerate(control.layers.tolist()):
            seen = exit_outcomes.narrower if control.narrow[index] else exit_outcomes
            assert torch.equal(
                control.logits[index], seen.logits[exit_outcomes.exit_index(layer), index]
            )
    assert len({tuple(control.narrow.tolist()) for control in controls}) > 1


def test_a_frontier_with_widths_per_input():
    adaptive, task = _adaptive(), _task()
    variant = Variant(1.0, narrow=0.5, narrow_after=3)
    reference = torch.zeros(len(LENGTHS), 3)
    ((_, exit_outcomes, points),) = survey(adaptive, task, task.test, [variant], reference)
    narrow = [point for point in points if point.plan.narrows]
    assert {point.plan.narrow_above for point in narrow} == set(NARROW_ABOVE)
    assert {point.kind for point in narrow} == {"exits"}
    assert {point.plan.layers for point in points if point.kind == "depth"} == {2, 3}
    for point in narrow[:3]:
        adaptive.plan = point.plan
        assert point.cost_share < 1
        labels = point.record(on_front=True).labels
        assert labels["narrow_above"] == point.plan.narrow_above
        whole = float(dense_flops(adaptive, task.test).mean())
        control = random_control(task, exit_outcomes, point, whole, reference)
        assert (control.kind, control.plan) == ("random", point.plan)
    (plain,) = survey(adaptive, task, task.test, [Variant(0.5)], reference)
    assert not any(point.plan.narrows for point in plain[2])
    assert "narrow" not in plain[2][0].record(on_front=False).labels


def test_a_plan_is_compared_with_the_answers_of_the_dense_model():
    """Its divergence and its share of changed answers, against sums over single examples."""
    adaptive, task = _adaptive(), _task()
    whole = outcomes(adaptive, task, task.test, full_plan(adaptive.encoder.sizes))
    reference = whole.logits[-1]
    ((_, seen, points),) = survey(adaptive, task, task.test, [Variant(0.5)], reference)
    for point in points:
        decision = decided(seen, point)
        changed = sum(map(bool, decision.answers != reference.argmax(-1))) / len(LENGTHS)
        assert point.changed == pytest.approx(changed)
        truth, given = reference.double().softmax(-1), decision.logits.double().softmax(-1)
        assert point.divergence == pytest.approx(float((truth * (truth / given).log()).sum()) / 12)
    assert len({round(point.divergence, 6) for point in points}) > 3
    ((_, _, same),) = survey(adaptive, task, task.test, [Variant(1.0)], reference)
    deep = next(p for p in same if p.kind == "depth" and p.plan.layers == 4)
    assert (deep.divergence, deep.changed) == (pytest.approx(0, abs=1e-6), 0)


def test_a_shorter_network():
    adaptive, task = _adaptive(), _task()
    exit_outcomes = outcomes(adaptive, task, task.test, _plan(adaptive, tokens_kept=0.5))
    for depth, threshold in ((2, 1.0), (3, 1.0), (3, 0.7), (2, 0.7)):
        decision = decide(exit_outcomes, threshold, layers=depth)
        assert decision.plan.layers == depth
        _assert_is_real(decision, adaptive, task)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_decisions_hold_in_other_precisions(dtype):
    """At the very confidences that occur, where rounding could tip the scale."""
    adaptive, task = _adaptive(dtype=dtype), _task()
    # examples one by one: rounding differs with the shape of a batch
    exit_outcomes = outcomes(adaptive, task, task.test, _plan(adaptive), batch_size=1)
    for threshold in exit_outcomes.logits[0].softmax(-1).amax(-1)[:4].tolist():
        decision = decide(exit_outcomes, threshold)
        layers = _run(adaptive, task, decision.plan)[1]
        assert torch.equal(decision.layers, layers)


def test_random_exits_are_as_many_in_each_layer():
    adaptive, task = _adaptive(), _task()
    exit_outcomes = outcomes(adaptive, task, task.test, _plan(adaptive))
    decision = decide(exit_outcomes, 0.7)
    controls = [left_at_random(exit_outcomes, decision, seed) for seed in range(5)]
    for control in controls:
        assert Counter(control.layers.tolist()) == Counter(decision.layers.tolist())
        assert control.plan == decision.plan
        for index, layer in enumerate(control.layers.tolist()):
            position = exit_outcomes.exits.index(layer)
            assert torch.equal(control.logits[index], exit_outcomes.logits[position, index])
            run = float(exit_outcomes.layer_flops[:layer, index].sum())
            heads = sum(layer >= stop for stop in (*decision.plan.stops, 4))
            assert float(control.flops[index]) == run + heads * exit_outcomes.head_flops
    assert len({tuple(control.layers.tolist()) for control in controls}) > 1
    again = left_at_random(exit_outcomes, decision, 0)
    assert torch.equal(again.layers, controls[0].layers)


def test_what_is_not_a_number_stays_to_the_end():
    adaptive, task = _adaptive(), _task()
    exit_outcomes = outcomes(adaptive, task, task.test, _plan(adaptive))
    exit_outcomes.logits[:, 3] = torch.nan
    decision = decide(exit_outcomes, 0.0)
    assert int(decision.layers[3]) == 4
    assert bool(decision.logits[3].isnan().all())
    assert decision.layers.tolist().count(2) == len(LENGTHS) - 1


def test_some_of_the_examples():
    adaptive, task = _adaptive(), _task()
    exit_outcomes = outcomes(adaptive, task, task.test, _plan(adaptive))
    chosen = [7, 0, 3]
    part, whole = decide(exit_outcomes.subset(chosen), 0.7), decide(exit_outcomes, 0.7)
    assert torch.equal(part.layers, whole.layers[chosen])
    assert torch.equal(part.logits, whole.logits[chosen])
    assert torch.equal(part.flops, whole.flops[chosen])
    assert torch.equal(exit_outcomes.subset(chosen).labels, task.test.labels[chosen])


def test_the_score_is_the_tasks_metric():
    adaptive, task = _adaptive(), _task()
    decision = decide(outcomes(adaptive, task, task.test, _plan(adaptive)), 0.7)
    right = (decision.answers == task.test.labels).double().mean()
    assert score(task, decision, task.test.labels) == pytest.approx(float(right))


@pytest.mark.parametrize("family", ["bert", "vit", "deit"])
def test_the_dense_models_arithmetic(family):
    """Against the counted arithmetic of transformers' model, but for the patches' projection."""
    adaptive, task = _adaptive(family), _task("bert" if family == "bert" else "vit")
    flops, model = dense_flops(adaptive, task.test), dense(family)
    counts = token_counts(adaptive, task.test)
    for index in (0, 1, 5):
        batch = task.collate([task.test[index]])
        batch.pop("labels")
        rows = adaptive.embed(**batch)[0]
        assert int(counts[index]) == len(rows)
        patches = 0 if family == "bert" else 2 * 4 * 16 * 3 * 4 * 4
        assert float(flops[index]) == model_flops(model, batch).total - patches
    decision = decide(outcomes(adaptive, task, task.test, full_plan(adaptive.encoder.sizes)))
    assert torch.equal(decision.flops, flops)


def test_the_model_is_left_as_it_was():
    adaptive, task = _adaptive(), _task()
    adaptive.plan = _plan(adaptive, exits=(3,), threshold=0.8)
    before, modes = adaptive.plan, [module.training for module in adaptive.train().modules()]
    exit_outcomes = outcomes(adaptive, task, task.test, _plan(adaptive))
    assert adaptive.plan == before
    assert [module.training for module in adaptive.modules()] == modes
    assert isinstance(exit_outcomes, Outcomes)
    adaptive.eval()
    again = outcomes(adaptive, task, task.test, _plan(adaptive))
    assert torch.equal(exit_outcomes.logits, again.logits), (
        "nothing is dropped out while training pauses"
    )


def test_depths_and_plans_that_cannot_be_asked_for():
    adaptive, task = _adaptive(exits=[3]), _task()
    sizes = adaptive.encoder.sizes
    with pytest.raises(UsageError, match="no exit head after layer 2"):
        outcomes(adaptive, task, task.test, narrowed(sizes, 1.0, layers=2))
    with pytest.raises(UsageError, match="needs 5 heads"):
        outcomes(adaptive, task, task.test, replace(full_plan(sizes), heads=(5,) * 4))
    exit_outcomes = outcomes(adaptive, task, task.test, full_plan(sizes))
    for layers in (2, 1, 5):
        with pytest.raises(UsageError, match=f"no exit head after layer {layers}; .* 3, 4"):
            decide(exit_outcomes, layers=layers)
    with pytest.raises(UsageError, match="no exit head after layer 1"):
        leave_at(exit_outcomes, exit_outcomes.plan, torch.ones(len(LENGTHS), dtype=torch.long))
