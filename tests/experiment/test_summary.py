"""Means over seeds and paired differences, held against a slow obvious form."""

from __future__ import annotations

import random
from statistics import fmean, stdev

import pytest
from scipy.stats import t as student

from sparing.core.record import Record
from sparing.experiment.summary import Summary, mean_record, paired, summarise

ARMS, TASKS, SEEDS = ("softmax", "a", "b"), ("one", "two"), (0, 1, 2, 3)


@pytest.fixture(scope="module")
def records():
    chance = random.Random(0)
    made = [
        Record(
            "score",
            chance.random(),
            "share",
            "measured",
            {"arm": arm, "task": task, "seed": seed, "method": str(seed)},
            count=100,
        )
        for arm in ARMS
        for task in TASKS
        for seed in SEEDS
    ]
    made = [r for r in made if (r.labels["arm"], r.labels["seed"]) != ("a", 1)]  # failed
    return [*made, Record("latency_ms", 3.0, "ms", "measured", {"arm": "a"})]


def _find(records, name, **labels):
    (record,) = [r for r in records if r.name == name and labels.items() <= r.labels.items()]
    return record


def _slow(numbers):
    mean, error = fmean(numbers), stdev(numbers) / len(numbers) ** 0.5
    reach = float(student(len(numbers) - 1).ppf(0.975)) * error
    return mean, (mean - reach, mean + reach)


def test_means_and_differences_are_those_of_the_slow_form(records):
    summary = summarise(records, Summary(baselines=("softmax", "b"), free=("method",)))
    for task in TASKS:
        scores = {
            arm: {
                r.labels["seed"]: r.value
                for r in records
                if r.labels.get("task") == task and r.labels["arm"] == arm
            }
            for arm in ARMS
        }
        for arm in ARMS:
            value, interval = _slow(list(scores[arm].values()))
            mean = _find(summary, "mean_score", arm=arm, task=task)
            assert (mean.value, mean.count) == (pytest.approx(value), len(scores[arm]))
            assert mean.interval == pytest.approx(interval)
            assert mean.labels == {"arm": arm, "task": task, "over": "seeds"}
            for less in {"softmax", "b"} - {arm}:
                shared = scores[arm].keys() & scores[less].keys()
                value, interval = _slow([scores[arm][n] - scores[less][n] for n in shared])
                gap = _find(summary, "score_difference", arm=arm, task=task, less=less)
                assert (gap.value, gap.count) == (pytest.approx(value), len(shared))
                assert gap.interval == pytest.approx(interval)


def test_what_has_no_seed_or_is_left_out_is_not_averaged(records):
    assert summarise(records, Summary(left_out=("score",))) == []
    names = {r.name for r in summarise(records, Summary(free=("method",)))}
    assert names == {"mean_score"}


def test_a_quantity_that_is_not_compared_has_a_mean_alone(records):
    summary = Summary(baselines=("softmax",), free=("method",), uncompared=("score",))
    assert {r.name for r in summarise(records, summary)} == {"mean_score"}


def test_labels_that_are_not_kept_do_not_split_a_mean(records):
    summary = summarise(records, Summary(mean_labels=("arm", "task")))
    assert len(summary) == len(ARMS) * len(TASKS)


def test_seeds_that_agree_to_the_last_answer_have_the_spread_of_rounding():
    same = mean_record("mean_score", [0.5] * 5, "share", {}, step=0.01)
    low, high = same.interval
    assert high - low > 0
    assert mean_record("mean_score", [0.5] * 5, "share", {}).interval == (0.5, 0.5)


def test_pairs_are_those_that_both_have():
    assert paired({2: 1.0, 1: 2.0, 3: 3.0}, {1: 5.0, 2: 6.0}) == ([1.0, 2.0], [6.0, 5.0])


def test_an_arm_is_not_compared_with_itself_nor_with_one_that_has_no_common_seed(records):
    lone = Record("score", 0.5, "share", "measured", {"arm": "c", "task": "one", "seed": 9})
    summary = summarise([*records, lone], Summary(baselines=("softmax",), free=("method",)))
    gaps = [r for r in summary if r.name == "score_difference"]
    assert {r.labels["arm"] for r in gaps} == {"a", "b"}
    assert _find(summary, "mean_score", arm="c").count == 1
