"""The benchmark of mechanisms on accelerators runs on a processor too."""

from __future__ import annotations

import importlib
import json

import pytest


@pytest.fixture
def rows_at_once():
    return importlib.import_module("rows_at_once")


def test_each_mechanism_is_timed_in_both_ways(rows_at_once, monkeypatch, capsys):
    monkeypatch.setattr(rows_at_once, "BY_ROWS", ("local",))
    monkeypatch.setattr(rows_at_once, "BY_HAND", ("linear",))
    small = ["--tokens", "32", "--rows", "2", "--rounds", "2", "--json"]
    monkeypatch.setattr("sys.argv", ["rows_at_once.py", *small])
    rows_at_once.main()
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    of_training = [row["arm"] for row in rows if row["kind"] == "training"]
    assert of_training == ["softmax", "local", "linear", "local, before", "linear, before"]
    assert all(row["step_ms"] > 0 for row in rows)
    monkeypatch.setattr("sys.argv", ["rows_at_once.py", "--rounds", "1"])
    with pytest.raises(SystemExit):
        rows_at_once.main()
