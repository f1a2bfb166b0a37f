"""The table of slimmed models of other answers than one class."""

from __future__ import annotations

import importlib
import json

import pytest

from tests.benchmarks.test_slim_pool import written
from tests.slim import records


@pytest.fixture
def slim_kinds():
    return importlib.import_module("slim_kinds")


def followed(folder):
    """A run's folder as that of a task of entities."""
    path = written(folder, records.Story()) / "config.json"
    config = json.loads(path.read_text())
    config["task"] |= {"metric": "entity_f1", "chosen_by": "same_answer"}
    path.write_text(json.dumps(config))


def test_each_precision_has_its_fastest_forms(slim_kinds, tmp_path, monkeypatch, capsys):
    followed(tmp_path / "wnut17-0")
    written(tmp_path / "sst2-0", records.Story())
    monkeypatch.setattr("sys.argv", ["slim_kinds.py", str(tmp_path)])
    slim_kinds.main()
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines()[2:]]
    assert {row[0] for row in rows} == {"| wnut17"}
    forms = [row[1].partition(",")[0] + row[1].rpartition(" ")[2] for row in rows[:6]]
    assert len(rows) == 7
    assert [form.startswith("slim") for form in forms] == [False, True] * 3
    assert rows[-1][1].endswith("(served)")
    dense, slim = rows[0], rows[1]
    assert dense[4] == "–"
    assert float(slim[2]) < float(dense[2])
    assert slim[5].endswith(" %")


def test_runs_of_classes_are_not_among_them(slim_kinds, tmp_path, monkeypatch):
    written(tmp_path / "sst2-0", records.Story())
    monkeypatch.setattr("sys.argv", ["slim_kinds.py", str(tmp_path)])
    with pytest.raises(SystemExit, match="no finished run of slim on such a task"):
        slim_kinds.main()
