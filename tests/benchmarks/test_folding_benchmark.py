"""Folded beside plain: the rows of a tiny model, their answers, and the table."""

from __future__ import annotations

import importlib

import pytest

TINY = {
    "vocab_size": 40,
    "hidden_size": 16,
    "num_attention_heads": 2,
    "intermediate_size": 20,
    "max_position_embeddings": 64,
}


@pytest.fixture
def script(monkeypatch, free_sizes):
    module = importlib.import_module("folding")
    changes = {"SHAPE": TINY, "LENGTHS": (8, 20), "BATCHES": (1, 2), "ROUNDS": 2, "LAYERS": 1}
    for name, value in changes.items():
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(module, "MOST_TOKENS", 20)
    return module


def test_each_engine_length_and_batch_has_a_row(script, tmp_path):
    forms = script.models()
    rows = list(script.measured(forms, script.sessions(forms, tmp_path), "cpu"))
    assert [(row["engine"], row["tokens"], row["batch"]) for row in rows] == [
        ("pytorch", 8, 1),
        ("onnxruntime", 8, 1),
        ("pytorch", 8, 2),
        ("onnxruntime", 8, 2),
        ("pytorch", 20, 1),
        ("onnxruntime", 20, 1),
        ("pytorch", 20, 2),
    ]
    assert all(row["ratio"] > 0 and row["difference"] < 1e-4 for row in rows)
    lines = script.table_of(rows).splitlines()
    assert len(lines) == 2 + len(rows)
    assert lines[3].startswith("| onnxruntime | 8 | 1 |")


def test_the_ratio_is_plain_over_folded(script):
    now = [0.0]

    def lasting(seconds):
        return lambda: now.__setitem__(0, now[0] + seconds)

    calls = {"plain": lasting(3.0), "folded": lasting(2.0)}
    times = script.paired_latency(calls, baseline="folded", rounds=3, clock=lambda: now[0])
    row = script.row(times, tokens=4)
    measured = [row[name] for name in ("plain_ms", "folded_ms", "ratio", "tokens")]
    assert measured == pytest.approx([3000, 2000, 1.5, 4])
