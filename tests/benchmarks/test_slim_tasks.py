"""Pooling runs of slim: tasks by their examples, seeds of one task as one."""

from __future__ import annotations

from math import sqrt

import pytest

from benchmarks import slim_tasks
from sparing.core.record import Record


def row(task, seed, speed, difference, error, examples):
    return {
        "task": task,
        "seed": seed,
        "batch": 1,
        "speed_up": speed,
        "difference": difference,
        "standard_error": error,
        "examples": examples,
    }


def test_seeds_do_not_make_the_examples_more():
    one = slim_tasks.pooled([row("a", 0, 2.0, -0.01, 0.004, 1000)])
    three = slim_tasks.pooled([row("a", seed, 2.0, -0.01, 0.004, 1000) for seed in range(3)])
    assert three["one_sided_95_bound"] == pytest.approx(one["one_sided_95_bound"])
    assert three["examples"] == one["examples"] == 1000


def test_tasks_are_weighted_and_independent():
    rows = [row("a", 0, 2.0, -0.01, 0.01, 3000), row("b", 0, 8.0, 0.03, 0.02, 1000)]
    found = slim_tasks.pooled(rows)
    assert found["difference"] == pytest.approx(0.75 * -0.01 + 0.25 * 0.03)
    error = sqrt((0.75 * 0.01) ** 2 + (0.25 * 0.02) ** 2)
    assert found["one_sided_95_bound"] == pytest.approx(found["difference"] - 1.645 * error)
    assert found["speed_up"] == pytest.approx(4.0)


def test_a_run_is_summed_up_by_its_fastest_form():
    def record(name, value, engine, interval, arm="slim"):
        labels = {"arm": arm, "engine": engine, "batch": 1}
        return Record(name, value, "", "measured", labels, interval, 100)

    records = [
        record("speed_up", 1.5, "eager", (1.4, 1.6)),
        record("speed_up", 2.5, "onnxruntime", (2.4, 2.6)),
        record("score_difference", 0.5, "eager", (0.4, 0.6)),
        record("score_difference", -0.01, "onnxruntime", (-0.0429, 0.0229)),
        record("speed_up", 9.0, "onnxruntime", (8.0, 10.0), arm="slim int8"),
    ]
    found = slim_tasks.summary_of(records, 1)
    assert found["speed_up"] == 2.5
    assert found["difference"] == -0.01
    assert found["standard_error"] == pytest.approx(0.02)
    assert slim_tasks.summary_of(records, 8) is None
