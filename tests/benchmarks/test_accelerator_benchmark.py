"""The script for a device, run at a tiny size on the processor."""

from __future__ import annotations

import importlib
import json

import pytest


@pytest.fixture
def accelerator():
    return importlib.import_module("accelerator")


@pytest.fixture
def setup(accelerator):
    return accelerator.Setup("cpu", "float32", (32, 64), heads=2, dim=16, path="accelerator")


def test_every_finished_cell_is_written_at_once_and_none_is_repeated(
    accelerator, tmp_path, setup, capsys
):
    file = tmp_path / "records.jsonl"
    accelerator.run(file, setup, 600.0, ["window", "linear causal fla"])
    done = accelerator.finished(file)
    assert list(done) == ["window", "linear causal fla"]
    for row in done["linear causal fla"]["rows"]:
        assert row["refused"]
    accelerator.run(file, setup, 600.0, ["window", "local"])
    assert [json.loads(line)["cell"] for line in file.read_text().splitlines()] == [
        *("window", "linear causal fla", "local")
    ]
    rows = accelerator.finished(file)["local"]["rows"]
    assert [(row["tokens"], row["training"]) for row in rows] == [
        *((32, False), (64, False), (64, True))
    ]
    assert "local" in capsys.readouterr().out
    assert "| window |" in accelerator.table_of(accelerator.finished(file))


def test_no_cell_begins_after_the_time_is_over(accelerator, tmp_path, setup, capsys):
    file = tmp_path / "records.jsonl"
    accelerator.run(file, setup, -1.0, ["local"])
    assert not file.exists()
    assert "goes on with 'local'" in capsys.readouterr().out


def test_a_line_that_was_cut_off_is_left_out(accelerator, tmp_path, setup):
    file = tmp_path / "records.jsonl"
    file.write_text('{"cell": "local", "rows": []}\n{"cell": "window", "ro')
    assert list(accelerator.finished(file)) == ["local"]


def test_a_missed_goal_is_in_the_table(accelerator):
    row = {"tokens": 4096, "training": False, "speed": 1.0, "interval": [0.9, 1.1], "goal": 1.5}
    shown = accelerator.table_of({"linear": {"rows": [row]}})
    assert "| linear | 1.00 (0.90 to 1.10), goal 1.5 |" in shown
    met = accelerator.table_of({"linear": {"rows": [{**row, "speed": 2.0}]}})
    assert "goal" not in met


def test_names_of_cells_differ_and_goals_are_of_three_lengths(accelerator):
    names = [cell.name for cell in accelerator.CELLS]
    assert len(set(names)) == len(names) == 30
    assert all(cell.goals is None or len(cell.goals) == 3 for cell in accelerator.CELLS)
