"""Table I on one page: printed figures beside those of several runs."""

from __future__ import annotations

import pytest
from papers.tests.adaattention.records import config

from sparing.core.record import Record
from sparing.report.run import Run
from sparing_papers.adaattention.table_one import table_one


def _run(*records):
    return Run(config(), list(records), [], [])


def _gap(task, arm, value, interval):
    labels = {"arm": arm, "task": task}
    return Record("score_difference", value, "score", "measured", labels, interval, 3)


def _scores(task, arm, *values):
    labels = {"arm": arm, "task": task, "split": "test", "metric": "accuracy"}
    return [
        Record("seed_score", value, "score", "measured", {**labels, "seed": seed})
        for seed, value in enumerate(values)
    ]


def _line(runs, task):
    (line,) = [line for line in table_one(runs).splitlines() if line.startswith(f"| {task} ")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_a_task_that_no_run_has_shows_what_is_printed():
    cells = _line({"one": _run()}, "rte")
    assert cells[1] == "printed −3.7"
    assert cells[4:] == ["printed −0.40, 1.74×", "not run"]


def test_the_first_run_with_compared_answers_is_shown():
    speed = Record("speed_up", 0.5, "ratio", "measured", {"arm": "skip", "task": "sst2"})
    speed.labels["inputs"] = "all"
    runs = {
        "seeds": _run(*_scores("sst2", "full", 0.9, 0.9), *_scores("sst2", "skip", 0.8, 0.8)),
        "first": _run(_gap("sst2", "skip", -0.02, (-0.03, -0.01)), speed),
        "second": _run(_gap("sst2", "skip", -0.5, (-0.6, -0.4))),
    }
    cells = _line(runs, "sst2")
    assert cells[3] == "printed −0.70; here −2.0 (−3.0 to −1.0), 0.500×"
    assert cells[5] == "first"


def test_trainings_alone_are_paired_by_seed():
    """Of gaps of 10 and 12 points, Student's interval is 12.7 standard errors of 1 point wide."""
    runs = {
        "a": _run(_gap("mrpc", "adaptive", 0.0, (-0.01, 0.01))),
        "b": _run(
            *_scores("mrpc", "full", 0.80, 0.82, 0.9), *_scores("mrpc", "bigbird", 0.70, 0.70)
        ),
    }
    cells = _line(runs, "mrpc")
    assert cells[2] == "printed −3.0; here −11.0 (−23.7 to +1.7)"
    assert cells[5] == "b, a"


@pytest.mark.parametrize("metric", ["f1", "matthews"])
def test_other_metrics_and_single_trainings_do_not_count(metric):
    scores = [*_scores("mrpc", "full", 0.8, 0.8), *_scores("mrpc", "bigbird", 0.7, 0.7)]
    for record in scores:
        record.labels["metric"] = metric
    alone = [*_scores("cola", "full", 0.8), *_scores("cola", "bigbird", 0.7)]
    runs = {"a": _run(*scores, *alone)}
    assert _line(runs, "mrpc")[5] == _line(runs, "cola")[5] == "not run"


@pytest.mark.parametrize(("metric", "run"), [("matthews", "a"), ("accuracy", "not run")])
def test_cola_is_compared_by_correlation(metric, run):
    scores = [*_scores("cola", "full", 0.3, 0.31), *_scores("cola", "bigbird", 0.2, 0.22)]
    for record in scores:
        record.labels["metric"] = metric
    assert _line({"a": _run(*scores)}, "cola")[5] == run
