"""Ways of one model: the rows of a tiny one, their answers, and the table."""

from __future__ import annotations

import importlib

import pytest

TINY = {
    "vocab_size": 40,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 20,
}


@pytest.fixture
def script(monkeypatch):
    module = importlib.import_module("packing")
    monkeypatch.setattr(module, "SHAPE", TINY)
    monkeypatch.setattr(module, "BATCHES", (1, 4))
    return module


def test_each_engine_precision_order_and_batch_has_a_row(script):
    rows = list(script.measured(8, 2))
    orders = [("arrival", 1), ("arrival", 4), ("sorted", 4)]
    forms = [("ONNX Runtime", precision) for precision in ("float32", "int8")]
    forms += [("PyTorch", precision) for precision in ("float32", "bfloat16")]
    seen = [(row["engine"], row["precision"], row["order"], row["batch"]) for row in rows]
    assert seen == [(*form, *order) for form in forms for order in orders]
    assert [row["pads"] for row in rows if row["batch"] == 1] == [0] * 4
    arrival, by_length = rows[1]["pads"], rows[2]["pads"]
    assert arrival > by_length > 0
    assert all(row["difference"] < 0.05 and row["ratio"] > 0 for row in rows)
    lines = script.table_of(rows).splitlines()
    assert len(lines) == 2 + len(rows)
    assert lines[3].startswith("| ONNX Runtime | float32 | arrival | 4 |")
    assert lines[3].split(" | ")[5] == "–"


def test_padded_and_packed_are_two_ways(script, monkeypatch):
    freezing = importlib.import_module("sparing.transfer.freezing")
    seen, pack = [], freezing.pack
    monkeypatch.setattr(freezing, "pack", lambda *given: seen.append(1) or pack(*given))
    model = script.BertForSequenceClassification(script.BertConfig(**TINY)).eval()
    (segment,) = script.without_pads(model)
    calls = script.calls_of(model, segment, script.batched(script.texts(8), 4))
    calls["padded"]()
    calls["transformers"]()
    assert seen == []
    calls["packed"]()
    assert seen == [1, 1]
