"""Pooling runs of slim: answers example by example, tasks by their examples."""

from __future__ import annotations

import json
import math

import pytest
import torch
from safetensors.torch import save_file

from benchmarks import slim_tasks
from sparing.core.record import Record, RecordLog


def answers(folder, right):
    """A run's answers to two classes; ``right`` lists by arm which examples are answered well."""
    folder.mkdir()
    labels = torch.tensor([0, 1, 0, 1])
    tensors = {"labels": labels}
    for arm, told in right.items():
        classes = torch.where(torch.tensor(told), labels, 1 - labels)
        tensors[arm] = torch.nn.functional.one_hot(classes, 2).float()
    save_file(tensors, folder / slim_tasks.FILE)
    return folder


def test_gaps_tell_who_alone_is_right(tmp_path):
    place = answers(
        tmp_path / "a",
        {"dense": [True, True, False, False], "slim": [True, False, True, False]},
    )
    assert slim_tasks.gaps_of(place, "slim").tolist() == [0.0, -1.0, 1.0, 0.0]
    assert slim_tasks.gaps_of(place, "static") is None


def test_an_arm_is_pooled_over_the_runs_that_have_it(tmp_path):
    good, bad = [True] * 4, [True, True, False, False]
    one = answers(tmp_path / "one", {"dense": good, "slim": bad, "static": good})
    two = answers(tmp_path / "two", {"dense": good, "slim": good})
    folders = {"a": [one], "b": [two]}
    found = slim_tasks.pooled(folders, "slim")
    assert (found.value, found.examples, found.runs) == (pytest.approx(-0.25), 8, 2)
    assert slim_tasks.pooled(folders, "static").examples == 4
    assert slim_tasks.pooled(folders, "slim int8") is None


def test_speeds_are_averaged_by_task_on_a_logarithmic_scale():
    rows = [
        {"task": task, "batch": 1, "speed_up": speed}
        for task, speed in (("a", 2.0), ("a", 2.0), ("b", 8.0))
    ]
    assert slim_tasks.speeds(rows, 1) == pytest.approx(math.sqrt(2.0 * 8.0))
    assert slim_tasks.speeds(rows, 8) is None


def test_a_run_is_summed_up_by_its_fastest_form():
    def record(name, value, engine, interval, arm="slim"):
        labels = {"arm": arm, "engine": engine, "batch": 1}
        return Record(name, value, "", "measured", labels, interval, 100)

    records = [
        record("speed_up", 1.5, "eager", (1.4, 1.6)),
        record("speed_up", 2.5, "onnxruntime", (2.4, 2.6)),
        record("score_difference", 0.5, "eager", (0.4, 0.6)),
        record("score_difference", -0.01, "onnxruntime", (-0.04, 0.02)),
        record("speed_up", 9.0, "onnxruntime", (8.0, 10.0), arm="slim int8"),
    ]
    found = slim_tasks.summary_of(records, 1)
    assert found["speed_up"] == 2.5
    assert found["difference"] == -0.01
    assert found["difference_interval"] == (-0.04, 0.02)
    assert slim_tasks.summary_of(records, 8) is None


def test_recorded_runs_are_pooled_without_running_anything(tmp_path, monkeypatch, capsys):
    place = answers(
        tmp_path / "slim-sst2-seed-3-0a1b2c3d-2026-11",
        {"dense": [True, True, True, False], "slim": [True, True, False, False]},
    )
    labels = {"arm": "slim", "engine": "eager", "batch": 1}
    RecordLog(place / "records.jsonl").append(
        [
            Record("speed_up", 2.0, "", "measured", labels, (1.9, 2.1), 4),
            Record("score_difference", -0.25, "", "measured", labels, (-0.5, 0.0), 4),
        ]
    )
    called = ["--records", str(tmp_path), "--tasks", "sst2", "--output-dir", str(tmp_path / "out")]
    monkeypatch.setattr("sys.argv", ["slim_tasks.py", *called, "--seeds", "3"])
    slim_tasks.main()
    assert "batch 1: 2.00 times as fast" in capsys.readouterr().out
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["pooled_accuracy"]["slim"]["value"] == pytest.approx(-0.25)
    monkeypatch.setattr("sys.argv", ["slim_tasks.py", *called, "--seeds", "4"])
    with pytest.raises(SystemExit, match="0 runs of sst2 with seed 4"):
        slim_tasks.main()
