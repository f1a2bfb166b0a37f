"""One file beside its segments: the rows of a tiny model, and the table."""

from __future__ import annotations

import importlib

import pytest

from sparing.export.folder import export_chain
from sparing.export.joined import join
from sparing.transfer.freezing import segments


@pytest.fixture
def script(monkeypatch, free_sizes):
    module = importlib.import_module("joined_exits")
    shape = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32}
    for name, value in (("SHAPE", shape), ("BATCHES", (1, 4)), ("TEXTS", 8), ("ROUNDS", 1)):
        monkeypatch.setattr(module, name, value)
    return module


def test_every_batch_size_and_share_has_a_row(script, tmp_path):
    parts = export_chain(segments(script.model()), script.batches(2)[0], tmp_path)
    rows = list(script.measured("float32", parts, join(parts, tmp_path / "whole.onnx")))
    assert [(row["batch"], row["share"]) for row in rows] == [
        (size, share) for size in (1, 4) for share in (0.0, 0.5, 0.9)
    ]
    assert all(row["ratio"] > 0 for row in rows)
    lines = script.table_of(rows).splitlines()
    assert len(lines) == 8
    assert lines[3].startswith("| float32 | 1 | 50 % |")
