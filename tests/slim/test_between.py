"""The dense model in INT8 between a plan and the dense model in float32, against plain loops."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from sparing.slim.evidence.between import candidates_between, costs_of, may_come_between
from sparing.slim.evidence.candidates import (
    THRESHOLDS,
    Candidate,
    changed_by,
    losses,
    stages,
    taken,
)

KEY = Candidate("slim", "onnxruntime", "int8", "scales per channel")
INT8 = replace(KEY, model="dense")
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
    for threshold in (0.6, 0.9, 1.0):
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
    cost = {}
    for threshold in THRESHOLDS:
        for second in THRESHOLDS:
            ends = [plain(rows, threshold, second) for rows in logits]
            made = logits[range(len(logits)), ends].argmax(-1)
            changed = int((made != logits[:, 3].argmax(-1)).sum())
            cost[threshold, second] = changed, float(costs[ends].sum())
    pairs = []
    for share in SHARES:
        listed = candidates_between(KEY, logits, costs, logits[:, 3], [share])
        allowed = [time for changed, time in cost.values() if changed / len(logits) <= share]
        assert len(listed) == bool(allowed)
        for one in listed:
            assert cost[one.threshold, one.second][1] == pytest.approx(min(allowed))
            assert cost[one.threshold, one.second][0] / len(logits) <= share
            assert (one.key, one.cascade) == (KEY, True)
        pairs += listed
    assert len(set(pairs)) > 1
    assert candidates_between(KEY, logits, costs, logits[:, 3], SHARES) == list(
        dict.fromkeys(pairs)
    )


def test_no_pair_where_every_pair_changes_more():
    logits = answers()
    logits[:, 3] = -logits[:, 3]
    reference = -logits[:, 3]
    costs = costs_of(KEY, (2, 4), SPEEDS)
    assert candidates_between(KEY, logits, costs, reference, [0.0]) == []


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
