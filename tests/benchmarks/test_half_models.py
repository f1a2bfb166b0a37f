"""Half models beside dense ones: the fastest form of each side, and which way the factors go."""

from __future__ import annotations

import importlib

import pytest
import torch

from sparing.measure.latency import PairedLatency
from sparing.measure.statistics import median_ratio
from sparing.transfer.adapting.adapt import adapt


@pytest.fixture
def script():
    return importlib.import_module("half_models")


def _timed(ms):
    samples = (ms, ms * 1.01, ms * 0.99)
    return PairedLatency(samples, ms, ms, ms, median_ratio(samples, samples), 1, 1)


def test_the_factor_is_the_fastest_dense_over_the_fastest_half(script):
    timed = {
        "plain eager": _timed(30.0),
        "dense eager": _timed(20.0),
        "dense onnxruntime": _timed(12.0),
        "half eager": _timed(10.0),
        "half onnxruntime": _timed(5.0),
    }
    row = script._row("deberta-v3", "float32", 64, 1, timed)
    assert row["engines"] == {"dense": "onnxruntime", "half": "onnxruntime"}
    assert row["factor"] == pytest.approx(12 / 5)
    assert row["over_plain_factor"] == pytest.approx(3)
    assert row["folded_over_plain_factor"] == pytest.approx(1.5)
    table = script.table_of([row, {**row, "factor": 1.5}])
    assert (
        "| deberta-v3 | float32 | 64 | 1 | 12.0 (onnxruntime) | 5.0 (onnxruntime) | 2.40 (" in table
    )
    assert "- deberta-v3, float32: 1.90 times as fast" in table


def test_every_shape_has_a_half(script, monkeypatch):
    monkeypatch.setattr(script, "LAYERS", 1)
    for family, (name, sizes) in script.SHAPES.items():
        layers = {key: 1 for key in ("n_layers", "num_hidden_layers") if key in sizes}
        monkeypatch.setitem(script.SHAPES, family, (name, {**sizes, **layers}))
        model = script.dense_model(family)
        half = adapt(model)
        half.plan = script.narrowed(half.encoder.sizes, 0.5)
        with torch.no_grad():
            logits = half(**script.inputs(2, 9)).logits
        assert logits.isfinite().all()
        assert half.plan.heads == (6,)
