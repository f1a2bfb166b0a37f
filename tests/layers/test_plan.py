"""Plans: what they refuse, what they mean, and that JSON keeps them."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from sparing.core.errors import UsageError
from sparing.layers.plan import LayerSizes, Plan, full_plan, narrowed, narrowing

SIZES = [LayerSizes(12, 32, 32, 1536)] * 6
PLAN = Plan((4, 4, 2), (8, 8, 4), exits=(1, 2), threshold=0.9)
NARROW = {"narrow_after": 1, "narrow_above": 0.8, "narrow_heads": (3, 2), "narrow_neurons": (8, 1)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"heads": ()}, "same layers; got 0 and 3"),
        ({"neurons": (8, 8)}, "same layers; got 3 and 2"),
        ({"heads": (4, 0, 2)}, "at least one head"),
        ({"neurons": (8, -8, 2)}, "at least one head and one neuron"),
        ({"tokens_kept": 0.0}, r"tokens_kept must be in \(0, 1\]; got 0"),
        ({"tokens_kept": 1.01}, "tokens_kept"),
        ({"tokens_kept": math.nan}, "tokens_kept"),
        ({"threshold": -0.1}, "threshold must be in"),
        ({"threshold": 1.1}, "threshold must be in"),
        ({"threshold": math.nan}, "threshold must be in"),
        ({"tokens_above": -1.0}, "tokens_above not negative"),
        ({"tokens_above": math.nan}, "tokens_above not negative"),
        ({"tokens_after": 0}, "layers from 1 to 3"),
        ({"exits": (0,)}, "layers from 1 to 3"),
        ({"exits": (1, 4)}, "layers from 1 to 3"),
        ({**NARROW, "narrow_above": 1.5}, r"narrow_above must be in \[0, 1\]"),
        ({**NARROW, "narrow_above": math.nan}, "narrow_above must be in"),
        ({**NARROW, "narrow_after": 3}, r"to 2, the last layer but one; got 0.8 and 3"),
        ({**NARROW, "narrow_after": -1}, "narrow_after from 0"),
        ({**NARROW, "narrow_after": 2}, "each of the 1 layers after narrow_after; got 2 and 2"),
        ({**NARROW, "narrow_after": 0}, "each of the 0 layers"),
        ({**NARROW, "narrow_heads": (3,)}, "got 1 and 2"),
        ({**NARROW, "narrow_heads": (3, 3)}, "must be from 1 to the plan"),
        ({**NARROW, "narrow_neurons": (9, 1)}, "must be from 1 to the plan"),
        ({**NARROW, "narrow_neurons": (8, 0)}, "must be from 1 to the plan"),
        ({"gated": True, "tokens_kept": 0.5}, "by gates, or by tokens_kept"),
        ({"confidence": "lerned"}, "softmax or learned; got 'lerned'.*learned"),
    ],
)
def test_impossible_plans_are_refused(change, message):
    with pytest.raises(UsageError, match=message):
        replace(PLAN, **change)


def test_stops_are_where_an_input_may_really_leave():
    assert PLAN.layers == 3
    assert PLAN.stops == (1, 2)
    assert replace(PLAN, exits=(2, 3, 1, 2)).stops == (1, 2), "in order, each once, not the end"
    assert replace(PLAN, threshold=1.0).stops == ()
    assert replace(PLAN, threshold=0.0).stops == (1, 2)


@pytest.mark.parametrize(
    ("change", "classes", "all_leave"),
    [
        ({"threshold": 0.5}, 2, True),
        ({"threshold": 0.51}, 2, False),
        ({"threshold": 0.5}, 3, False),
        ({"threshold": 0.3}, 3, True),
        ({"threshold": 0.0, "exits": ()}, 2, False),
        ({"threshold": 0.5, "confidence": "learned"}, 2, False),
    ],
)
def test_nobody_is_less_sure_than_one_of_all_classes(change, classes, all_leave):
    assert replace(PLAN, **change).lets_all_leave(classes) is all_leave


def test_tokens_are_dropped_only_where_a_layer_follows():
    assert not PLAN.drops_tokens
    assert replace(PLAN, tokens_kept=0.5).drops_tokens
    assert replace(PLAN, tokens_above=0.1).drops_tokens
    assert not replace(PLAN, tokens_kept=0.5, tokens_after=3).drops_tokens


def test_plans_that_ask_for_too_much():
    full_plan(SIZES).check_fits(SIZES)
    with pytest.raises(UsageError, match="the plan has 6 layers, the model 5"):
        full_plan(SIZES).check_fits(SIZES[:5])
    small = [*SIZES[:3], LayerSizes(8, 32, 32, 1536), LayerSizes(12, 32, 32, 8)]
    with pytest.raises(UsageError, match=r"12 heads .* layer 4, which has 8 and 1536"):
        full_plan(SIZES[:4]).check_fits(small)
    with pytest.raises(UsageError, match="1536 neurons in layer 5, which has 12 and 8"):
        Plan((8,) * 5, (1536,) * 5).check_fits(small)


def test_json_keeps_a_plan():
    plan = replace(PLAN, tokens_kept=0.7, tokens_above=0.25, tokens_after=1)
    for original in (plan, replace(plan, **NARROW, confidence="learned")):
        assert Plan.from_dict(json.loads(json.dumps(original.to_dict()))) == original


def test_what_older_versions_wrote_is_read_and_what_says_nothing_new_is_theirs_to_read():
    old = {
        "heads": [4, 4, 2],
        "neurons": [8, 8, 4],
        "exits": [1, 2],
        "threshold": 0.9,
        "tokens_kept": 1.0,
        "tokens_above": 0.0,
        "tokens_after": 2,
    }
    assert Plan.from_dict(old) == PLAN
    assert PLAN.to_dict() == old
    assert replace(PLAN, **NARROW).to_dict().keys() - old.keys() == NARROW.keys()


def test_the_two_ways_of_a_plan_that_narrows():
    plan = replace(PLAN, **NARROW)
    assert plan.narrows
    assert not replace(plan, narrow_above=1.0).narrows
    assert not PLAN.narrows
    assert plan.wider == PLAN
    assert plan.narrower == replace(PLAN, heads=(4, 3, 2), neurons=(8, 8, 1))
    assert (PLAN.wider, PLAN.narrower) == (PLAN, PLAN)
    assert plan.without_choice == replace(PLAN, exits=(), threshold=1.0)
    assert replace(plan, exits=(2,)).computed_exits == (1, 2, 3)
    assert replace(plan, exits=(), narrow_above=1.0).computed_exits == (3,)


def test_shortened_plans():
    plan = replace(PLAN, **NARROW)
    assert plan.shortened(3) == plan
    two = plan.shortened(2)
    assert (two.heads, two.exits, two.narrow_heads, two.narrow_neurons) == (
        (4, 4),
        (1, 2),
        (3,),
        (8,),
    )
    assert plan.shortened(1) == Plan((4,), (8,), exits=(1,), threshold=0.9)
    for layers in (0, 4):
        with pytest.raises(UsageError, match="the plan has 3 layers, not"):
            plan.shortened(layers)


def test_narrowing_takes_a_share_of_the_plans_own_widths():
    plan = narrowing(narrowed(SIZES, 2 / 3), 0.5, after=4, above=0.9)
    assert plan.narrower.heads == (8,) * 4 + (4,) * 2
    assert plan.narrower.neurons == (1024,) * 4 + (512,) * 2
    assert (plan.narrow_after, plan.narrow_above) == (4, 0.9)
    for share, after in ((0.0, 2), (1.1, 2), (math.nan, 2), (0.5, 0), (0.5, 6)):
        with pytest.raises(UsageError, match="a share in"):
            narrowing(full_plan(SIZES), share, after=after, above=0.9)


@pytest.mark.parametrize(
    "change",
    [
        {"heads": None},
        {"heads": [4, 4, 2.5]},
        {"neurons": ["8", 8, 4]},
        {"heads": [4, 4]},
        {"threshold": "high"},
        {"depth": 3},
        {**NARROW, "narrow_heads": [2, 2.5]},
        {**NARROW, "narrow_after": "two"},
        {**NARROW, "narrow_heads": None},
        {"confidence": 3},
    ],
)
def test_what_is_no_plan_says_so(change):
    with pytest.raises(UsageError):
        Plan.from_dict({**PLAN.to_dict(), **change})
    with pytest.raises(UsageError, match="not a plan"):
        Plan.from_dict({"heads": [1]})


def test_narrowed_plans_keep_a_share_of_everything():
    assert narrowed(SIZES, 1.0) == full_plan(SIZES)
    assert narrowed(SIZES, 2 / 3) == Plan((8,) * 6, (1024,) * 6)
    assert narrowed(SIZES, 0.5, layers=2) == Plan((6, 6), (768, 768))
    least = narrowed(SIZES, 0.001)
    assert (least.heads[0], least.neurons[0]) == (1, 1)
    assert narrowed([LayerSizes(3, 4, 4, 15)], 0.99).neurons == (15,), "not more than there are"
    assert narrowed([LayerSizes(3, 4, 4, 23)], 0.7).neurons == (16,)
    for share, layers in ((0.0, None), (1.1, None), (math.nan, None), (0.5, 0), (0.5, 7)):
        with pytest.raises(UsageError, match="a share in"):
            narrowed(SIZES, share, layers)
