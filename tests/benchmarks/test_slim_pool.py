"""Pooling runs of slim: served forms, precisions, batch sizes, and what was certified."""

from __future__ import annotations

import importlib
import json
import math

import pytest
import torch
from safetensors.torch import save_file

from sparing.core.compressed import compress_file
from sparing.core.record import RecordLog
from sparing.experiment.owned import ANSWERS
from tests.slim import records

COUNT = 40
SLIM32 = "slim, onnxruntime float32"
BFLOAT16 = "slim, openvino bfloat16"


@pytest.fixture
def slim_pool():
    return importlib.import_module("slim_pool")


def written(folder, story, wrong=()):
    """A run's folder; every form answers all test inputs well but the first ones in ``wrong``."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(records.slim_config(story)))
    listed = records.slim_records(story)
    RecordLog(folder / "records.jsonl").append(listed)
    labels = torch.arange(COUNT) % 2
    tensors = {"labels": labels}
    for form in records.tested(story):
        classes = labels.clone()
        count = dict(wrong).get(str(form), 0)
        classes[:count] = 1 - classes[:count]
        tensors[str(form)] = torch.nn.functional.one_hot(classes, 2).float()
    save_file(tensors, folder / ANSWERS)
    return folder


def test_speeds_are_those_of_the_served_form_and_of_each_precision(slim_pool, tmp_path):
    written(tmp_path / "sst2-0", records.Story())
    (run,) = slim_pool.finished(tmp_path)
    assert (run.task, run.seed, run.served) == ("sst2", 0, str(records.BOLD))
    table = run.run.table
    assert run.speed(slim_pool.OVER_BEST, 1) is table.find("served_speed_up", batch=1)
    over = run.speed(slim_pool.OVER_FLOAT32, 8)
    assert over is table.find("speed_up", batch=8, **records.BOLD.labels)
    assert run.speed("bfloat16", 8).labels["precision"] == "bfloat16"
    assert run.form("bfloat16") == BFLOAT16


def test_a_task_counts_as_much_as_another(slim_pool, tmp_path):
    for name, speed in (("a-0", 2.0), ("a-1", 2.0), ("b-0", 8.0)):
        written(tmp_path / name, records.Story(speed=speed, runner_up=1.0))
    runs = slim_pool.finished(tmp_path)
    single = [run.speed(slim_pool.OVER_BEST, 1).value for run in runs]
    assert single[0] == single[1] < single[2]
    mean = slim_pool.pooled_speed(runs, slim_pool.OVER_BEST, 1)
    assert mean == pytest.approx(math.sqrt(single[0] * single[2]))
    assert slim_pool.pooled_speed(runs, slim_pool.OVER_BEST, 99) is None


def test_accuracy_is_pooled_by_input_and_precision(slim_pool, tmp_path):
    wrong = {str(records.BOLD): 4, BFLOAT16: 2}
    folder = written(tmp_path / "a-0", records.Story(), wrong.items())
    written(tmp_path / "a-1", records.Story(), wrong.items())
    compress_file(folder / ANSWERS)
    runs = slim_pool.finished(tmp_path)
    served, bfloat16 = (slim_pool.pooled_accuracy(runs, n) for n in ("served", "bfloat16"))
    assert (served.value, served.runs, served.examples) == (pytest.approx(-0.1), 2, COUNT)
    assert bfloat16.value == pytest.approx(-0.05)
    assert bfloat16.bound < bfloat16.value
    assert slim_pool.pooled_accuracy(runs, "float32").value == 0
    assert slim_pool.pooled_accuracy(runs[:1], "int4") is None


def test_texts_without_labels_are_pooled_apart(slim_pool, tmp_path, monkeypatch, capsys):
    written(tmp_path / "slim-sst2-seed-3-0a1b2c3d-2026-12", records.Story())
    written(tmp_path / "texts-500-0", records.UNLABELLED)
    (tmp_path / "sentences").mkdir()
    stopped = written(tmp_path / "mrpc-0", records.Story())
    (stopped / ANSWERS).unlink()
    output = tmp_path / "summary.json"
    monkeypatch.setattr("sys.argv", ["slim_pool.py", str(tmp_path), "--output", str(output)])
    slim_pool.main()
    labelled, labelless = capsys.readouterr().out.split("## Without labels")
    assert f"| sst2 | 3 | {records.BOLD} | 1 | " in labelled
    assert "texts-500" not in labelled
    assert "| texts-500 | 0 | " in labelless
    assert labelled.count("| served | 1 | 40 | +0.00 | ") == 1
    certified = [line for line in labelled.splitlines() if line.startswith("| sst2 | 3 | ")][-1]
    forms = [cell.strip().partition(", ")[2] for cell in certified.split("|")[3:-1]]
    assert forms == [str(form) for form in records.POINTS.values()]
    numbers = json.loads(output.read_text())
    assert numbers.keys() == {"labels", "no labels"}
    assert numbers["labels"]["runs"] == [{"task": "sst2", "seed": 3, "served": str(records.BOLD)}]


def test_a_point_without_a_form_says_none(slim_pool, tmp_path):
    written(tmp_path / "a-0", records.NOTHING)
    runs = slim_pool.finished(tmp_path)
    assert slim_pool.frontier_table(runs).splitlines()[-1].count("| none") == 5


def test_exits_are_shown_beside_the_static_pruned_model(slim_pool, tmp_path):
    written(tmp_path / "a-0", records.Story())
    written(tmp_path / "b-0", records.DENSE)
    (run,) = (run for run in slim_pool.finished(tmp_path) if run.task == "a")
    *_, first, second = slim_pool.static_table([run]).splitlines()
    share = f"{run.run.table.find('static_plan').value:.2f}"
    costs = f"{share} | {share} | 1.25 (1.20 to 1.30) | +0.20 (-0.40 to +0.80)"
    assert first == f"| a-0 | {records.BOLD} | 1 | {costs} |"
    assert second.startswith(f"| a-0 | {records.BOLD} | 8 | ")
    assert len(slim_pool.static_table(slim_pool.finished(tmp_path)).splitlines()) == 4


def test_nothing_to_pool_is_an_error(slim_pool, tmp_path):
    with pytest.raises(SystemExit, match="holds no finished run of slim"):
        slim_pool.pool(tmp_path, None)
    written(tmp_path / "a", records.Story())
    with pytest.raises(SystemExit, match="named TASK-SEED"):
        slim_pool.finished(tmp_path)
