"""The dense model in INT8 between a plan and the dense model in float32, against plain loops."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from sparing.slim.evidence.between import (
    Staged,
    candidates_between,
    costs_of,
    may_come_between,
    staged,
)
from sparing.slim.evidence.candidates import (
    THRESHOLDS,
    Candidate,
    Screened,
    changed_by,
    losses,
    stages,
    taken,
)
from sparing.slim.evidence.certify import every_candidate

WHOLE = Candidate("slim", "onnxruntime", "int8", "scales per channel")
KEY = replace(WHOLE, threshold=0.5)
INT8 = replace(WHOLE, model="dense")
EXACT = Candidate("dense", "onnxruntime", "float32")
SHARES = (0.0, 0.02, 0.05, 0.2)
SPEEDS = {KEY: 5.0, INT8: 2.5, EXACT: 1.0}


def answers(texts=60, seed=0):
    """Those of a plan with two exits, of the dense model in INT8, and of the dense model."""
    generator = torch.Generator().manual_seed(seed)
    exact = 3 * torch.randn(texts, 2, generator=generator)
    noise = torch.randn(texts, 3, 2, generator=generator) * torch.tensor([[3.0], [2.0], [0.4]])
    return torch.cat([exact[:, None] + noise, exact[:, None]], 1)


def by_form(logits):
    """The stored answers of both forms; the dense model is behind each."""
    return {KEY: logits[:, [0, 1, 3]], INT8: logits[:, 2:], EXACT: logits[:, 3:]}


def plain(rows, threshold, second):
    """The number of the stage that answers a text."""
    for number, limit in enumerate((threshold, threshold, second)):
        if float(rows[number].softmax(-1).max()) > limit:
            return number
    return 3


def test_answers_are_those_of_a_plain_loop():
    logits = answers()
    for threshold in (0.6, 0.9, 0.9999):
        for second in (0.5, 0.8):
            one = replace(KEY, threshold=threshold, cascade=True, second=second)
            made, exits = taken(one, stages(one, by_form(logits)))
            expected = [plain(rows, threshold, second) for rows in logits]
            assert exits.tolist() == expected
            assert torch.equal(made, logits[range(len(logits)), expected])
            (column,) = losses([one], by_form(logits), logits[:, 3]).T
            assert (column == changed_by(one, logits, logits[:, 3])).all()


def test_without_a_second_threshold_nothing_comes_between():
    one = replace(KEY, threshold=0.8, cascade=True)
    assert stages(one, {KEY: answers()}).shape[1] == 4


@pytest.mark.parametrize("seed", [0, 1])
def test_the_pair_of_thresholds_of_least_time_is_found(seed):
    logits, costs = answers(seed=seed), costs_of(KEY, (2, 4), SPEEDS)
    form = Staged(KEY, logits, costs)
    cost = {}
    for threshold in THRESHOLDS:
        for second in THRESHOLDS:
            ends = [plain(rows, threshold, second) for rows in logits]
            made = logits[range(len(logits)), ends].argmax(-1)
            changed = int((made != logits[:, 3].argmax(-1)).sum())
            cost[threshold, second] = changed, float(costs[ends].sum())
    pairs = []
    for share in SHARES:
        listed = candidates_between([form], logits[:, 3], [share])
        allowed = [time for changed, time in cost.values() if changed / len(logits) <= share]
        assert len(listed) == bool(allowed)
        for one in listed:
            assert cost[one.threshold, one.second][1] == pytest.approx(min(allowed))
            assert cost[one.threshold, one.second][0] / len(logits) <= share
            assert (one.key, one.cascade) == (KEY, True)
        pairs += listed
    assert len(set(pairs)) > 1
    assert candidates_between([form], logits[:, 3], SHARES) == list(dict.fromkeys(pairs))


def test_no_pair_where_every_pair_changes_more():
    logits = answers()
    logits[:, 3] = -logits[:, 3]
    reference = -logits[:, 3]
    costs = costs_of(KEY, (2, 4), SPEEDS)
    assert candidates_between([Staged(KEY, logits, costs)], reference, [0.0]) == []


CUT = replace(WHOLE, layers=2)
LAYERS = (2, 4)


def screened(with_exits=4.0):
    """All forms as they are screened; the plan may be slower with its exits than without."""
    speeds = SPEEDS | {WHOLE: 5.0, CUT: 9.0, replace(CUT, layers=4): 5.0, KEY: with_exits}
    return [Screened(key, speed, True, True) for key, speed in speeds.items()]


def with_cuts(logits):
    """The stored answers of all forms; a cut's are those of the plan's exit after its layers."""
    cuts = {CUT: logits[:, [0, 3]], replace(CUT, layers=4): logits[:, [1, 3]]}
    return by_form(logits) | {WHOLE: logits[:, [1, 3]]} | cuts


def test_a_cut_costs_its_own_time_and_exits_the_time_of_the_form_that_has_them():
    logits = answers()
    plan, cut, all_layers = staged(screened(), with_cuts(logits), LAYERS)
    assert (plan.key, cut.key, all_layers.key.layers) == (KEY, CUT, 4)
    assert plan.costs.tolist() == pytest.approx([0.125, 0.25, 0.65, 1.65])
    assert cut.costs.tolist() == pytest.approx([1 / 9, 1 / 9 + 0.4, 1 / 9 + 1.4])
    assert all_layers.costs.tolist() == pytest.approx([0.2, 0.6, 1.6])
    assert torch.equal(plan.answers, logits)
    assert torch.equal(cut.answers, logits[:, [0, 2, 3]])


def test_the_form_of_least_time_is_taken_for_each_share():
    logits, listed = answers(), []
    forms = staged(screened(), with_cuts(logits), LAYERS)
    for share in SHARES:
        least = []
        for form in forms:
            for one in candidates_between([form], logits[:, 3], [share]):
                _, ends = taken(one, form.answers)
                least.append((float(form.costs[ends].mean()), one))
        listed += [min(least, key=lambda pair: pair[0])[1]] if least else []
    assert candidates_between(forms, logits[:, 3], SHARES) == list(dict.fromkeys(listed))
    for speed, exits in ((1.0, False), (400.0, True)):
        forms = staged(screened(speed), with_cuts(logits), LAYERS)
        assert {one.exits for one in candidates_between(forms, logits[:, 3], SHARES)} == {exits}


def test_nothing_is_staged_where_dense_int8_has_not_answered():
    stored = {key: made for key, made in with_cuts(answers()).items() if key != INT8}
    assert staged(screened(), stored, LAYERS) == []


def test_each_form_is_listed_once_and_cuts_go_by_way_of_int8_alone():
    logits = answers()
    listed = every_candidate(screened(), with_cuts(logits), LAYERS, logits[:, 3], SHARES)
    assert len(listed) == len(set(listed))
    alone = [one for one in listed if one == one.key]
    assert alone == [INT8, EXACT, WHOLE, CUT]
    assert {one.second < 1 for one in listed if one.layers and one.cascade} == {True}
    assert {one.cascade for one in listed if one.exits and one.second == 1} == {True, False}
    # without dense INT8 they go straight to float32, the whole plan without exits too
    stored = {key: made for key, made in with_cuts(logits).items() if key != INT8}
    listed = every_candidate(screened(), stored, LAYERS, logits[:, 3], SHARES)
    assert {one.layers for one in listed if one.cascade} == {None, 2, 4}
    assert all(one.second == 1 for one in listed)


def test_costs_add_up_the_models_that_have_run():
    expected = [0.5 / 5, 1 / 5, 1 / 5 + 1 / 2.5, 1 / 5 + 1 / 2.5 + 1]
    assert costs_of(KEY, (2, 4), SPEEDS).tolist() == pytest.approx(expected)


def test_it_needs_int8_on_both_sides_and_exits():
    stored = by_form(answers())
    assert may_come_between(KEY, stored)
    assert not may_come_between(KEY, {KEY: stored[KEY], EXACT: stored[EXACT]})
    assert not may_come_between(INT8, stored)
    assert not may_come_between(replace(KEY, precision="float32"), stored)
    assert not may_come_between(KEY, stored | {KEY: stored[KEY][:, :1]})


def test_it_is_named_and_read_back_from_its_labels():
    one = replace(KEY, threshold=0.9, cascade=True, second=0.6)
    assert Candidate.from_labels(one.labels) == one
    assert one.labels["cascade"] == 0.6
    assert one.key == KEY
    assert str(one).endswith("exits above 0.9, then dense int8 above 0.6, then dense")
    cut = replace(one, layers=3)
    assert Candidate.from_labels(cut.labels) == cut
    assert cut.key == replace(WHOLE, layers=3)
    assert cut.between == INT8
    assert "layers 1 to 3, exits above 0.9" in str(cut)
    assert one.exits
    assert not cut.exits
