"""Pooling runs of slim: answers example by example, tasks by their examples."""

from __future__ import annotations

import importlib
import json
import math

import pytest
import torch
from safetensors.torch import save_file

from sparing.core.compressed import compress_file, stored_path
from sparing.core.record import Record, RecordLog
from sparing.experiment.owned import ANSWERS
from sparing.report.run import read_run
from tests.benchmarks.conftest import FOLDER


@pytest.fixture
def slim_before():
    return importlib.import_module("slim_before")


def answers(folder, right):
    """A run's answers to two classes; ``right`` lists by variant which are answered well."""
    folder.mkdir()
    labels = torch.tensor([0, 1, 0, 1])
    tensors = {"labels": labels}
    for arm, is_right in right.items():
        classes = torch.where(torch.tensor(is_right), labels, 1 - labels)
        tensors[arm] = torch.nn.functional.one_hot(classes, 2).float()
    save_file(tensors, folder / ANSWERS)
    return folder


def test_gaps_tell_who_alone_is_right(slim_before, tmp_path):
    run_dir = answers(
        tmp_path / "a",
        {"dense": [True, True, False, False], "slim": [True, False, True, False]},
    )
    assert slim_before.gaps_of(run_dir, "slim").tolist() == [0.0, -1.0, 1.0, 0.0]
    assert slim_before.gaps_of(run_dir, "static") is None


def test_an_arm_is_pooled_over_the_runs_that_have_it(slim_before, tmp_path):
    good, bad = [True] * 4, [True, True, False, False]
    one = answers(tmp_path / "one", {"dense": good, "slim": bad, "static": good})
    two = answers(tmp_path / "two", {"dense": good, "slim": good})
    folders = {"a": [one], "b": [two]}
    estimate = slim_before.pooled(folders, "slim")
    assert (estimate.value, estimate.examples, estimate.runs) == (pytest.approx(-0.25), 8, 2)
    assert slim_before.pooled(folders, "static").examples == 4
    assert slim_before.pooled(folders, "slim int8") is None
    ours, less = slim_before._beside(folders, "static")
    assert (ours[0], ours[1], ours[6]) == ("slim, same runs", "1", "-50.00")
    assert less[0] == "slim less static pruned model"
    assert less[6].startswith("-50.00 (")
    compress_file(one / ANSWERS)
    assert slim_before.pooled(folders, "slim") == estimate
    assert slim_before._beside(folders, "slim int8") == []


def test_speeds_are_averaged_by_task_on_a_logarithmic_scale(slim_before):
    rows = [
        {"task": task, "arm": "slim", "batch": 1, "speed_up": speed}
        for task, speed in (("a", 2.0), ("a", 2.0), ("b", 8.0))
    ]
    assert slim_before.speeds(rows, "slim", 1) == pytest.approx(math.sqrt(2.0 * 8.0))
    assert slim_before.speeds(rows, "slim", 8) is None


def test_a_run_is_summed_up_by_its_fastest_form(slim_before):
    def record(name, value, engine, interval, arm="slim"):
        labels = {"arm": arm, "engine": engine, "batch": 1, "metric": "accuracy"}
        return Record(name, value, "", "measured", labels, interval, 100)

    records = [
        record("speed_up", 1.5, "eager", (1.4, 1.6)),
        record("speed_up", 2.5, "onnxruntime", (2.4, 2.6)),
        record("score_difference", 0.5, "eager", (0.4, 0.6)),
        record("score_difference", -0.01, "onnxruntime", (-0.04, 0.02)),
        record("speed_up", 9.0, "onnxruntime", (8.0, 10.0), arm="slim int8"),
    ]
    summary = slim_before.summary_of(records, "slim", 1)
    assert summary["speed_up"] == 2.5
    assert summary["difference"] == -0.01
    assert summary["difference_interval"] == (-0.04, 0.02)
    assert slim_before.summary_of(records, "slim", 8) is None
    # speeds were taken on some of the test split: the loss is that of all of it
    whole = record("whole_difference", -0.003, "", (-0.007, 0.001))
    summary = slim_before.summary_of([*records, whole], "slim", 1)
    assert (summary["difference"], summary["difference_interval"]) == (-0.003, (-0.007, 0.001))


def test_committed_runs_are_pooled_without_running_anything(slim_before, tmp_path):
    run_dir = answers(
        tmp_path / "slim-sst2-seed-3-0a1b2c3d-2026-11",
        {"dense": [True, True, True, False], "slim": [True, True, False, False]},
    )
    config = {"study": "slim", "arms": ["slim"], "baseline": "dense"}
    (run_dir / "config.json").write_text(json.dumps(config))
    labels = {"arm": "slim", "engine": "eager", "batch": 1, "metric": "f1"}
    RecordLog(run_dir / "records.jsonl").append(
        [
            Record("speed_up", 2.0, "", "measured", labels, (1.9, 2.1), 4),
            Record("score_difference", -0.25, "", "measured", labels, (-0.5, 0.0), 4),
        ]
    )
    runs = slim_before.recorded_runs(tmp_path, ["sst2"], (3, 4))
    assert runs == [("sst2", 3, run_dir)]
    table = slim_before.markdown(runs)
    assert "| sst2 | 3 | slim | 2.00 (1.90 to 2.10) | – | -25.00 F1 | -50.00 to +0.00 |" in table
    assert "| slim | 1 | 4 | 2.00 | – | – | -25.00 | -83.84 | examples alone |" in table
    assert slim_before.recorded_runs(tmp_path, ["sst2"], (3,), "slim-again") == []


# What the tables of docs/explanation/slim-results.md read of the runs.
READ = {
    "speed_up",
    "score_difference",
    "disagreement",
    "dense_score",
    "frontier_score",
    "chosen_plan",
    "int8_trial",
}


def test_the_committed_runs_are_readable_evidence():
    """They lie one folder lower than the runs that today's program can plot."""
    configs = sorted((FOLDER / "results").glob("slim-before-*/*/config.json"))
    studies = {path.parent: json.loads(path.read_text())["study"] for path in configs}
    slim = [folder for folder, study in studies.items() if study == "slim"]
    assert len(slim) == 25
    assert [folder.name for folder in studies if folder not in slim] == [
        "slim-shapes-aae154d0-2026-11"
    ]
    pooled = {f for f in slim if stored_path(f / ANSWERS) is not None}
    assert len(pooled) == 23
    needed = {f: READ | ({"whole_difference"} if f in pooled else set()) for f in slim}
    missing = {f.name: needed[f] - {r.name for r in read_run(f).records} for f in slim}
    assert {name: names for name, names in missing.items() if names} == {}
    of_pages = [path for config in configs for path in config.parent.glob("goals.json")]
    assert of_pages == [], "a run with goals is one that today's program decides again"
