"""The thresholds of a form, against a plain loop, and its answers, against a plain loop."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from sparing.measure.calibration import binomial_p_value
from sparing.slim.evidence.candidates import (
    THRESHOLDS,
    Candidate,
    answers_at,
    candidates_of,
    changed_by,
    losses,
    shares_to_try,
    stages,
    taken,
    with_safer,
)
from sparing.slim.search.divergence import divergence

KEY = Candidate("slim", "eager", "float32", threshold=0.5)
EPSILONS = (0.01, 0.05, 0.2)


def logits_of(exits, texts=200, seed=0):
    """Logits after some exits that agree more and more with those of the last."""
    generator = torch.Generator().manual_seed(seed)
    last = 3 * torch.randn(texts, 3, generator=generator)
    listed = [
        last + (exits - number) * torch.randn(texts, 3, generator=generator)
        for number in range(1, exits)
    ]
    return torch.stack([*listed, last], 1)


def _answer(rows, threshold, cascade):
    """One text's answer and exit, step by step."""
    ends = len(rows) if cascade or len(rows) == 1 else len(rows) - 1
    for number in range(ends):
        if number == ends - 1 or float(rows[number].softmax(-1).max()) > threshold:
            return rows[number], number
    raise AssertionError


@pytest.mark.parametrize("exits", [1, 2, 4])
@pytest.mark.parametrize("cascade", [False, True])
@pytest.mark.parametrize("threshold", [0.5, 0.8, 0.99, 1.0])
def test_answers_are_those_of_a_plain_loop(exits, cascade, threshold):
    logits = logits_of(exits)
    answers, numbers = answers_at(logits, threshold, cascade=cascade)
    for row, answer, number in zip(logits, answers, numbers.tolist(), strict=True):
        expected, end = _answer(row, threshold, cascade)
        assert number == end
        assert torch.equal(answer, expected)


@pytest.mark.parametrize("exits", [1, 2, 3, 4])
@pytest.mark.parametrize("seed", [0, 1])
def test_candidates_are_the_boldest_thresholds_of_a_plain_search(exits, seed):
    logits = logits_of(exits, seed=seed)
    reference = logits[:, -1]
    expected = set()
    for cascade in (False, True):
        # without the dense model behind it, a form of one part of its own has no exits
        if (exits - 1 if not cascade else exits) < 2:
            continue
        for epsilon in EPSILONS:
            for threshold in sorted(THRESHOLDS):
                answers = [_answer(row, threshold, cascade)[0].argmax() for row in logits]
                pairs = zip(answers, reference.argmax(-1), strict=True)
                if sum(bool(a != b) for a, b in pairs) / len(logits) <= epsilon:
                    expected.add((threshold, cascade))
                    break
    first, *listed = candidates_of(KEY, logits, reference, EPSILONS)
    assert len(listed) == len(set(listed))
    assert {(one.threshold, one.cascade) for one in listed} == expected
    assert first == KEY
    assert {one.key for one in listed} <= {KEY}


@pytest.mark.parametrize("second", [1.0, THRESHOLDS[58]])
def test_safer_neighbours_let_fewer_texts_leave(second):
    int8 = replace(KEY, engine="onnxruntime", precision="int8")
    logits = {int8: logits_of(4), int8.between: logits_of(2, seed=1)}
    one = replace(int8, threshold=THRESHOLDS[5], cascade=True, second=second)
    first, *safer = with_safer([one], logits)
    assert (first, len(safer)) == (one, 2)
    steps = [[THRESHOLDS.index(x.threshold), x.second] for x in safer]
    # the second threshold is at its end already, or there is none
    assert steps == [[6, second if second == 1 else THRESHOLDS[59]], [8, steps[0][1]]]
    exits = [taken(x, stages(x, logits))[1] for x in (one, *safer)]
    assert all((later >= earlier).all() for earlier, later in pairwise(exits))
    assert {replace(x, threshold=0.5, second=1.0) for x in safer} == {replace(int8, cascade=True)}


def test_neighbours_that_do_the_work_of_another_are_left_out():
    # confidences of 0.5 or 1: every threshold is the same
    sure = torch.tensor([[0.0, 0.0], [60.0, 0.0]])
    logits = {KEY: sure[torch.arange(40) % 2][:, None].repeat(1, 3, 1)}
    plain = replace(KEY, threshold=1.0)
    assert with_safer([KEY], logits) == [KEY]
    assert with_safer([plain], {plain: logits_of(3)}) == [plain], "no threshold, no neighbour"
    listed = [replace(KEY, threshold=THRESHOLDS[at]) for at in (4, 5)]
    every = with_safer(listed, {KEY: logits_of(3)})
    assert len(every) == len(set(every)) == 5, "one is the other's neighbour"


def test_a_threshold_changes_no_more_than_its_share_and_more_steps_would():
    logits = logits_of(4)
    reference = logits[:, -1]
    (epsilon,) = [0.05]
    for one in candidates_of(KEY, logits, reference, [epsilon])[1:]:
        assert changed_by(one, logits, reference).mean() <= epsilon
        for bolder in (t for t in THRESHOLDS if t < one.threshold):
            other = Candidate("slim", "eager", "float32", "", bolder, one.cascade)
            assert changed_by(other, logits, reference).mean() > epsilon


def test_losses_are_changes_by_text_and_candidate():
    logits = logits_of(3)
    listed = candidates_of(KEY, logits, logits[:, -1], EPSILONS)
    table = losses(listed, {KEY: logits}, logits[:, -1])
    assert table.shape == (len(logits), len(listed))
    for column, one in zip(table.T, listed, strict=True):
        assert (column == changed_by(one, logits, logits[:, -1])).all()


def test_what_is_not_a_number_never_exits_early():
    logits = logits_of(3)
    logits[5, :2] = torch.nan
    _, numbers = answers_at(logits, 0.5, cascade=True)
    assert int(numbers[5]) == 2


@pytest.mark.parametrize(
    "one",
    [
        KEY,
        Candidate("dense", "openvino", "bfloat16"),
        Candidate("slim", "onnxruntime", "int8", "dynamic", 0.85, cascade=True),
    ],
)
def test_a_candidate_is_read_back_from_its_labels(one):
    assert Candidate.from_labels(one.labels) == one
    assert one.key.threshold == (0.5 if one.exits else 1.0)
    assert not one.key.cascade


def test_a_cascade_needs_another_model_behind_it():
    assert not Candidate("dense", "eager", "float32").cascades
    assert not Candidate("dense", "openvino", "bfloat16").cascades
    assert Candidate("dense", "openvino", "int8").cascades
    assert KEY.cascades


def test_divergence_is_the_mean_over_texts_of_the_kullback_leibler_sum():
    logits = logits_of(2, texts=7)
    given, reference = logits[:, 0], logits[:, 1]
    expected = 0.0
    for mine, truth in zip(given.double(), reference.double(), strict=True):
        p, q = truth.softmax(-1), mine.softmax(-1)
        expected += float(sum(a * (a / b).log() for a, b in zip(p, q, strict=True))) / 7
    assert divergence(given, reference) == pytest.approx(expected)
    assert divergence(reference, reference) == 0


@pytest.mark.parametrize("count", [40, 436, 4000])
def test_shares_are_the_largest_that_passes_and_one_that_likely_does(count):
    epsilons = (0.01, 0.03, 0.08)
    shares, expected = shares_to_try(count, epsilons, 0.05), set[float]()
    for epsilon in epsilons:
        passed = [n for n in range(count) if binomial_p_value(n, count, epsilon) <= 0.05 / 3]
        expected.add(max(passed, default=0) / count)
        if passed:
            finer = (step / 20_000 for step in range(2000))
            likely = max(p for p in finer if binomial_p_value(max(passed), count, p) >= 0.9)
            expected.add(min(shares, key=lambda share: abs(share - likely)))
            assert min(abs(share - likely) for share in shares) < 1e-4
    assert set(shares) == expected
    assert shares == sorted(shares)


def test_thresholds_are_close_where_texts_are_sure():
    unsure = [1 - threshold for threshold in THRESHOLDS]
    assert THRESHOLDS[0] == 0.5
    assert 1e-4 <= unsure[-1] < 2e-4
    steps = [first / second for first, second in pairwise(unsure)]
    assert min(steps) > 1.1
    assert max(steps) < 1.3


def test_a_candidate_in_words():
    one = Candidate("slim", "onnxruntime", "int8")
    assert str(one) == "slim, onnxruntime int8"
    assert str(replace(one, threshold=0.9)) == "slim, onnxruntime int8, exits above 0.9"
    whole = replace(one, threshold=0.9, cascade=True)
    assert str(whole) == "slim, onnxruntime int8, exits above 0.9, then dense"
