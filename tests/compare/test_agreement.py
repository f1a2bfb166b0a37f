"""Table, goals and headline answer the same question alike: one decision, three places."""

from __future__ import annotations

import random

import pytest

from sparing.compare.analysis import analyse
from sparing.compare.claims import accuracy_verdict, claims_of, speed_verdict
from sparing.compare.page.verdict import decide as headline
from sparing.core.record import Record
from sparing.experiment.claims import GoalResult, decide
from sparing.experiment.records import RecordTable
from tests.compare import records as make

ARMS = ["softmax", "a", "b", "c"]
WORDS = {True: {"better", "no worse"}, False: {"worse"}, "undecided": {"undecided"}}


def _measured(run, seeds):
    """Accuracies of every variant and seed, and ratios of latency, some differences near zero."""
    chance = random.Random(run)
    records = []
    for arm in ARMS:
        shift = 0.0 if arm == "softmax" else chance.choice([0.0, 0.03, -0.03, -0.008])
        for seed in range(seeds):
            accuracy = 0.8 + 0.002 * seed + shift + chance.gauss(0, 0.006)
            labels = {"arm": arm, "seed": seed, "split": "test"}
            records.append(Record("accuracy", accuracy, "share", "measured", labels))
        if arm != "softmax":
            ratio = chance.choice([0.7, 0.95, 0.99, 1.0, 1.3])
            ends = (0.97 * ratio, 1.03 * ratio)
            model_labels = {"arm": arm, "scope": "model", "tokens": 65, "batch": 1}
            records.append(make.record("latency_ratio", ratio, "ratio", ends, **model_labels))
    return records


@pytest.mark.parametrize("run", range(40))
@pytest.mark.parametrize("seeds", [1, 2, 5])
def test_they_agree(run, seeds):
    measured = _measured(run, seeds)
    records = measured + analyse(measured, ARMS, "softmax", 0.01, 1000)
    goals = {
        g.name: g for g in decide(claims_of(ARMS, "softmax", 0.01, 0.1, 65), RecordTable(records))
    }
    table = RecordTable(records)
    sound, fast = set(), set()
    for arm in ARMS[1:]:
        accuracy = goals[f"{arm}: accuracy less dense"]
        latency = goals[f"{arm}: model latency over dense at 65 tokens"]
        word = table.find("accuracy_difference", arm=arm).labels["verdict"]
        speed = table.find("latency_verdict", arm=arm).labels["verdict"]
        assert word in WORDS[accuracy.met]
        assert speed == {True: "faster", False: "slower"}.get(latency.met, "undecided")
        sound |= {arm} if accuracy.met is True else set()
        fast |= {arm} if latency.met is True else set()
    advice = headline(make.run_of(records, make.config(tuple(ARMS))))
    assert (advice.decision == "use" and advice.arm in fast) == bool(sound & fast)
    if seeds < 3:
        assert not sound  # two seeds decide nothing about accuracy, in any of the three


@pytest.mark.parametrize(
    ("met", "interval", "word"),
    [
        (True, (0.001, 0.02), "better"),
        (True, (-0.005, 0.02), "no worse"),
        (False, (-0.05, -0.02), "worse"),
        ("undecided", (-0.05, 0.02), "undecided"),
    ],
)
def test_accuracy_in_a_word(met, interval, word):
    result = GoalResult("a", -0.01, "share", sum(interval) / 2, interval, met)
    assert accuracy_verdict(result) == word


@pytest.mark.parametrize(
    ("met", "interval", "word"),
    [
        (True, (0.8, 0.9), "faster"),
        (True, (0.9, 1.0), "undecided"),
        (False, (1.1, 1.2), "slower"),
        ("undecided", (0.9, 1.1), "undecided"),
    ],
)
def test_speed_in_a_word(met, interval, word):
    result = GoalResult("a", 1.0, "ratio", sum(interval) / 2, interval, met)
    assert speed_verdict(result) == word
