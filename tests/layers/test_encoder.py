"""Inputs that leave, tokens that are dropped: each input gets what it would get alone."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import pytest
import torch

from sparing.core.errors import UsageError
from sparing.core.recording import record
from sparing.layers.gates import kept_tokens
from sparing.layers.packing import Packed
from sparing.layers.plan import narrowing
from sparing.measure.flops import count_flops
from tests.layers.stacks import apart, encoder, near, packed, whole

EXITS = (1, 2, 3)
NARROW = {"narrow_after": 2, "narrow_above": 0.5, "narrow_heads": (2, 1), "narrow_neurons": (5, 8)}
CHANGES = {
    "everything": {},
    "exits": {"exits": EXITS, "threshold": 0.65},
    "tokens": {"tokens_kept": 0.5, "tokens_after": 2},
    "tokens above": {"tokens_above": 0.9, "tokens_after": 1},
    "all of it": {
        "exits": EXITS,
        "threshold": 0.65,
        "tokens_kept": 0.7,
        "tokens_above": 0.3,
        "tokens_after": 1,
        "heads": (4, 3, 2),
        "neurons": (16, 8, 9),
    },
    "narrower": NARROW,
    "narrower and all of it": {
        **NARROW,
        "narrow_after": 1,
        "narrow_heads": (3, 2, 3),
        "narrow_neurons": (8, 8, 8),
        "exits": (1, 3),
        "threshold": 0.7,
        "tokens_kept": 0.7,
        "tokens_after": 2,
    },
}
LENGTHS = {"ragged": [9, 1, 4, 6, 2, 7, 3], "equal": [5] * 6, "one": [6]}


@pytest.fixture(params=CHANGES)
def plan(request):
    return replace(whole(encoder()), **CHANGES[request.param])


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("name", LENGTHS)
@torch.no_grad()
def test_a_batch_is_its_inputs_one_by_one(plan, name, norm_first):
    built = encoder(norm_first=norm_first)
    rows, layout = packed(LENGTHS[name])
    together = built(rows, layout, plan)
    alone = [built(*one, plan) for one in apart(rows, LENGTHS[name])]
    near(together.logits, torch.cat([single.logits for single in alone]))
    assert torch.equal(together.layers, torch.cat([single.layers for single in alone]))
    if plan.exits and len(alone) > 1:
        assert len(together.layers.unique()) > 1, "this test needs inputs that differ"


@torch.no_grad()
def test_each_input_leaves_at_the_first_exit_that_is_sure(plan):
    built = encoder()
    rows, layout = packed(LENGTHS["ragged"])
    trace = built.trace(rows, layout, plan)
    assert tuple(trace.answers) == tuple(range(1, plan.layers + 1))
    assert len(trace.states) == plan.layers + 1
    output = built(rows, layout, plan)
    for index in range(len(layout.lengths)):
        sure_exits = [
            number
            for number in plan.stops
            if trace.answers[number][index].softmax(-1).max() > plan.threshold
        ]
        expected = min(sure_exits, default=plan.layers)
        assert int(output.layers[index]) == expected
        near(output.logits[index], trace.answers[expected][index])


@torch.no_grad()
def test_nobody_leaves_at_a_threshold_of_one_and_everybody_at_zero():
    built = encoder()
    plan = replace(whole(built), exits=EXITS)
    rows, layout = packed(LENGTHS["ragged"])
    with torch.no_grad():
        for head in built.heads.values():
            head.classifier.bias[0] += 1e6
    assert built(rows, layout, plan).layers.tolist() == [4] * 7
    assert built(rows, layout, replace(plan, threshold=0.0)).layers.tolist() == [1] * 7
    assert built(rows, layout, replace(plan, exits=(3,), threshold=0.9)).layers.tolist() == [3] * 7


@torch.no_grad()
def test_what_is_recorded_is_what_is_executed(plan):
    built = encoder()
    lengths = LENGTHS["ragged"]
    rows, layout = packed(lengths)
    with record(built) as log:
        built(rows, layout, plan)
    (together,) = log["flops"]
    for index, one in enumerate(apart(rows, lengths)):
        counted = count_flops(lambda: built(*one, plan))  # noqa: B023
        assert float(together[index]) == counted
    assert count_flops(lambda: built(rows, layout, plan)) >= int(together.sum())


@pytest.mark.parametrize(
    "change",
    [
        {"heads": (3, 4, 4, 4)},
        {"neurons": (16, 16, 15, 16)},
        {"tokens_kept": 0.6},
        {"tokens_above": 1.0},
        {"heads": (4,) * 3, "neurons": (16,) * 3},
        {"exits": (2,), "threshold": 0.0},
        {**NARROW, "narrow_above": 0.0},
    ],
)
@torch.no_grad()
def test_what_is_dropped_is_not_computed(change):
    built = encoder()
    rows, layout = packed([9])
    full = whole(built)
    dear = count_flops(lambda: built(rows, layout, full))
    assert count_flops(lambda: built(rows, layout, replace(full, **change))) < dear


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("name", LENGTHS)
@torch.no_grad()
def test_each_input_has_the_widths_that_its_confidence_gives_it(name, norm_first):
    built = encoder(norm_first=norm_first)
    for changes in (CHANGES["narrower"], CHANGES["narrower and all of it"]):
        plan = replace(whole(built), **changes)
        rows, layout = packed(LENGTHS[name])
        after = plan.narrow_after
        confidence = built.trace(rows, layout, plan.wider).answers[after].softmax(-1).amax(-1)
        with record(built) as log:
            together = built(rows, layout, plan)
        narrow = (confidence > plan.narrow_above) & (together.layers > after)
        assert torch.equal(log["narrow"][0], narrow)
        for index, one in enumerate(apart(rows, LENGTHS[name])):
            way = plan.narrower if narrow[index] else plan.wider
            with record(built) as alone:
                expected = built(*one, way)
            near(together.logits[index : index + 1], expected.logits)
            assert int(together.layers[index]) == int(expected.layers)
            # the confidence head that decided has run on all inputs that got there
            extra = 0 if after in way.computed_exits else built.head(after).flops
            assert float(log["flops"][0][index]) == float(alone["flops"][0]) + extra


@torch.no_grad()
def test_everybody_narrower_and_nobody():
    built = encoder()
    plan = replace(whole(built), **NARROW)
    rows, layout = packed(LENGTHS["ragged"])
    wide, few = built(rows, layout, plan.wider).logits, built(rows, layout, plan.narrower).logits
    near(built(rows, layout, replace(plan, narrow_above=0.0)).logits, few)
    near(built(rows, layout, replace(plan, narrow_above=1.0)).logits, wide)
    mixed = built(rows, layout, plan).logits
    assert 0 < int(mixed.isclose(wide).all(1).sum()) < 7, "this test needs inputs that differ"


@torch.no_grad()
def test_no_layer_computes_what_a_narrower_input_does_not_use():
    """Together the two groups take what their inputs take alone, and not a product more."""
    built = encoder()
    plan = replace(whole(built), **NARROW)
    lengths = LENGTHS["equal"]
    rows, layout = packed(lengths)
    with record(built) as log:
        built(rows, layout, plan)
    assert count_flops(lambda: built(rows, layout, plan)) == int(log["flops"][0].sum())


@pytest.mark.parametrize("changes", [NARROW, CHANGES["narrower and all of it"]])
def test_a_trace_with_two_widths_and_its_gradients(changes):
    built = encoder()
    plan = replace(whole(built), **changes)
    rows, layout = packed(LENGTHS["ragged"])
    trace = built.trace(rows, layout, plan)
    near(trace.answers[4], built(rows, layout, replace(plan, exits=(), threshold=1.0)).logits)
    assert [len(s) for s in trace.states[1:]] == [int(part.sum()) for part in trace.lengths]
    assert set(trace.answers) == set(trace.pooled) == {1, 2, 3, 4}
    for number, first in trace.pooled.items():
        near(built.head(number)(first), trace.answers[number])
    for index, one in enumerate(apart(rows, LENGTHS["ragged"])):
        alone = built.trace(*one, plan)
        for number, state in enumerate(alone.states[1:]):
            of_sample = torch.arange(7).repeat_interleave(trace.lengths[number]) == index
            near(trace.states[number + 1][of_sample], state)
    sum(answers.square().sum() for answers in trace.answers.values()).backward()
    assert all(p.grad is not None and bool((p.grad != 0).any()) for p in built.parameters())


def _kept_indices(received, lengths, **changes):
    plan = replace(whole(encoder()), **changes)
    given = torch.tensor(received, dtype=torch.float64)
    keep = kept_tokens(given, Packed(torch.tensor(lengths)), plan)
    return [part.nonzero().flatten().tolist() for part in keep.split(lengths)]


def test_the_most_attended_tokens_stay_and_the_first():
    received = [[0.0, 0.1, 0.4, 0.2, 0.3], [0.1, 0.2, 0.7, 0, 0], [1, 0, 0, 0, 0]]
    lengths = [5, 3, 1]
    assert _kept_indices(received, lengths, tokens_kept=0.6) == [[0, 2, 4], [0, 2], [0]]
    assert _kept_indices(received, lengths, tokens_kept=0.61) == [[0, 2, 3, 4], [0, 2], [0]]
    assert _kept_indices(received, lengths, tokens_kept=1e-12) == [[0], [0], [0]]
    assert _kept_indices(received, lengths, tokens_kept=1.0, tokens_above=1.0) == [
        [0, 2, 3, 4],
        [0, 2],
        [0],
    ]
    assert _kept_indices(received, lengths, tokens_above=9.0) == [[0], [0], [0]]
    assert _kept_indices(received, lengths, tokens_kept=0.6, tokens_above=1.6) == [
        [0, 2],
        [0, 2],
        [0],
    ]


def test_ties_go_to_the_earlier_token():
    assert _kept_indices([[0.25] * 4], [4], tokens_kept=0.5) == [[0, 1]]
    assert _kept_indices([[0.0, 0.1, 0.3, 0.3, 0.3]], [5], tokens_kept=0.6) == [[0, 2, 3]]
    assert _kept_indices([[0.25] * 4], [4], tokens_above=1.0) == [[0, 1, 2, 3]]


def test_shares_are_rounded_up_exactly():
    """0.55 times 100 is 55.00000000000001 in floating point, and still 55 tokens."""
    lengths = list(range(1, 130))
    received = torch.zeros(len(lengths), 129, dtype=torch.float64)
    for percent in (7, 29, 55, 57, 58, 70):
        plan = replace(whole(encoder()), tokens_kept=percent / 100)
        layout = Packed(torch.tensor(lengths))
        counts = layout.choose(kept_tokens(received, layout, plan)).lengths.tolist()
        assert counts == [math.ceil(Fraction(percent, 100) * length) for length in lengths]


@torch.no_grad()
def test_those_kept_and_what_they_received_are_reported():
    built = encoder()
    plan = replace(whole(built), tokens_kept=0.5, tokens_after=2)
    rows, layout = packed([8, 3])
    with record(built) as log:
        built(rows, layout, plan)
    assert log["kept"][0].sum() == 4 + 2
    near(log["received"][0].sum(1), torch.ones(2, dtype=torch.float64))
    lengths = built.trace(rows, layout, plan).lengths
    assert [counts.tolist() for counts in lengths] == [[8, 3], [8, 3], [4, 2], [4, 2]]


@torch.no_grad()
def test_a_trace_shows_what_a_layer_made_of_all_its_rows():
    built = encoder()
    rows, layout = packed([8, 3])
    full = built.trace(rows, layout, whole(built)).states
    states = built.trace(rows, layout, replace(whole(built), tokens_kept=0.5)).states
    for number in (0, 1, 2):
        near(states[number], full[number])
    assert [len(rows_of_layer) for rows_of_layer in states] == [11, 11, 11, 6, 6]


@torch.no_grad()
def test_what_is_not_a_number_is_never_sure_and_never_lost(plan):
    built = encoder()
    lengths = LENGTHS["ragged"]
    rows, layout = packed(lengths)
    clean = built(rows, layout, plan)
    rows[12, 0] = torch.nan
    output = built(rows, layout, plan)
    spoiled = torch.arange(len(lengths)) == int(layout.owner[12])
    assert bool(output.logits[spoiled].isnan().all())
    assert output.layers[spoiled].tolist() == [plan.layers]
    near(output.logits[~spoiled], clean.logits[~spoiled])


@torch.no_grad()
def test_weights_that_are_not_numbers_let_nobody_leave():
    built = encoder()
    plan = replace(whole(built), exits=EXITS, threshold=0.0, tokens_kept=0.5, tokens_after=2)
    built.layers[0].rise.bias[3] = torch.nan
    output = built(*packed([4, 2]), plan)
    assert output.layers.tolist() == [4, 4]
    assert bool(output.logits.isnan().all())


@torch.no_grad()
def test_a_batch_of_nobody(plan):
    output = encoder()(*packed([]), plan)
    assert (output.logits.shape, output.layers.shape) == ((0, 3), (0,))


def test_heads_that_there_are_not():
    built = encoder(exits=(2,))
    assert built.exits == (2, 4)
    with pytest.raises(UsageError, match="no exit head after layer 3; there are after 2, 4"):
        built.head(3)
    with pytest.raises(UsageError, match="no exit head after layer 1"):
        built.check_runs(replace(whole(built), exits=(1,)))
    with pytest.raises(UsageError, match="no exit head after layer 1"):
        built.check_runs(narrowing(whole(built), 0.5, after=1, above=0.5))
    with pytest.raises(UsageError, match="the model 4"):
        built.check_runs(whole(encoder(layers=5)))
    built.check_runs(replace(whole(built), exits=(2,), threshold=0.5))
    for exits in ((0,), (5,)):
        with pytest.raises(UsageError, match="exits are layers from 1 to 4"):
            encoder(exits=exits)


def test_mixed_precision_and_gradients():
    """Training on an accelerator evaluates under autocast, where heads answer in bfloat16."""
    built = encoder().float()
    plan = replace(whole(built), exits=EXITS, threshold=0.5, tokens_kept=0.7)
    rows, layout = packed(LENGTHS["ragged"])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = built(rows.float(), layout, plan)
    assert len(output.layers.unique()) > 1
    output.logits.square().sum().backward()
    assert all(
        built.heads[str(n)].classifier.weight.grad is not None
        for n in output.layers.unique().tolist()
    )


@torch.no_grad()
def test_a_threshold_means_the_same_in_bfloat16():
    """Rounded to bfloat16 a probability of 0.9493 is 0.9492 or 0.9531."""
    built = encoder().bfloat16()
    rows, layout = packed([3] * 40)
    plan = replace(whole(built), exits=(1,))
    answers = built.trace(rows.bfloat16(), layout, plan).answers[1]
    surest = answers.float().softmax(-1).amax(-1)
    for threshold in surest.sort().values[10:30].tolist():
        output = built(rows.bfloat16(), layout, replace(plan, threshold=threshold))
        assert torch.equal(output.layers == 1, surest > threshold)
