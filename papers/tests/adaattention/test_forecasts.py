"""Forecasts of means over tasks, from scores and speeds of single seeds."""

from __future__ import annotations

import math
from statistics import variance

import pytest

from sparing.core.record import Record
from sparing.experiment.forecasts.needs import EXAMPLES
from sparing.experiment.records import RecordTable
from sparing.measure.pooling import Part, reach_of
from sparing_papers.adaattention.forecasts import UNKNOWN, of_difference, of_mean

OURS = {"sst2": (0.80, 0.83, 0.82), "stsb": (0.70, 0.75, 0.71)}
FULL = {"sst2": (0.81, 0.82, 0.82), "stsb": (0.72, 0.72, 0.72)}


def seed_scores(arm, by_task):
    for task, scores in by_task.items():
        for seed, score in enumerate(scores):
            labels = {"arm": arm, "task": task, "seed": seed, "metric": "accuracy"}
            yield Record("seed_score", score, "score", "measured", labels)
            yield Record("seed_score", 0.1 * seed, "score", "measured", {**labels, "metric": "f1"})
        labels = {"arm": arm, "task": task, "metric": "accuracy", "main": True}
        yield Record("score", sum(scores) / 3, "score", "measured", labels)


def gaps(task):
    return [one - other for one, other in zip(OURS[task], FULL[task], strict=True)]


def difference(tasks, examples, label, **more):
    """The mean over tasks with the interval that its parts give."""
    parts = [Part(variance(gaps(task)) / 3, 2).times(1 / len(tasks)) for task in tasks]
    value = sum(sum(gaps(task)) / 3 for task in tasks) / len(tasks)
    reach = reach_of([*parts, Part(examples, 10**6)], 0.95)
    ends = (value - reach, value + reach)
    labels = {"arm": "skip", "task": label, **more}
    return Record("score_difference", value, "score", "measured", labels, ends, 3), parts


@pytest.mark.parametrize(("tasks", "label"), [(["sst2"], "sst2"), (["sst2", "stsb"], "mean")])
def test_seeds_lessen_their_own_part_and_examples_stay(tasks, label):
    record, parts = difference(tasks, 0.0002, label)
    table = RecordTable([*seed_scores("skip", OURS), *seed_scores("full", FULL), record])
    forecast = of_difference(table, record, 0.95)
    assert (forecast.of, forecast.count) == ("seeds", 3)
    assert forecast.at(3) == pytest.approx(record.interval, rel=1e-2)
    expected = reach_of([*(part.at(12) for part in parts), Part(0.0002, 10**6)], 0.95)
    assert forecast.at(12)[1] - record.value == pytest.approx(expected, rel=2e-2)


def test_where_two_variances_fit_it_is_said_that_either_may_be_needed():
    known, _ = difference(["sst2"], 0.0002, "sst2")
    table = [*seed_scores("skip", OURS), *seed_scores("full", FULL)]
    assert of_difference(RecordTable([*table, known]), known, 0.95).besides == EXAMPLES
    unknown, _ = difference(["sst2"], 0.00002, "sst2")
    assert of_difference(RecordTable([*table, unknown]), unknown, 0.95).besides == UNKNOWN


def test_a_control_is_what_the_record_is_compared_to():
    record, _ = difference(["sst2"], 0.0002, "sst2", to="random")
    table = RecordTable([*seed_scores("skip", OURS), *seed_scores("random", FULL), record])
    assert of_difference(table, record, 0.95) is not None
    assert of_difference(RecordTable([*seed_scores("skip", OURS)]), record, 0.95) is None


def test_a_task_of_one_seed_has_no_forecast():
    record, _ = difference(["sst2"], 0.0002, "sst2")
    one = [r for r in seed_scores("skip", OURS) if r.labels.get("seed", 0) == 0]
    assert of_difference(RecordTable([*one, *seed_scores("full", FULL)]), record, 0.95) is None


def test_speeds_are_forecast_on_their_logarithm():
    speeds, logs = (1.2, 1.5, 1.4), []
    records = []
    for seed, speed in enumerate(speeds):
        logs.append(math.log(speed))
        labels = {"arm": "ours", "task": "sst2", "seed": seed, "inputs": "all", "group": "rivals"}
        records.append(Record("speed_up", speed, "ratio", "measured", labels, (1.1, 1.6), 200))
    part, rest = Part(variance(logs) / 3, 2), Part((math.log(1.6 / 1.1) / 2 / 1.96) ** 2, 199)
    centre = sum(logs) / 3
    reach = reach_of([part, rest], 0.95)
    ends = (math.exp(centre - reach), math.exp(centre + reach))
    mean = Record(
        "speed_up", math.exp(centre), "ratio", "measured", {"arm": "ours", "task": "all"}, ends, 1
    )
    forecast = of_mean(RecordTable([*records, mean]), mean, ["sst2"], 0.95, "log")
    low, high = forecast.at(9)
    assert low * high == pytest.approx(math.exp(2 * centre))
    assert math.log(high) - centre == pytest.approx(reach_of([part.at(9), rest], 0.95))
