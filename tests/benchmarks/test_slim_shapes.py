"""Stated exit rates, carried plans, paired ratios, and the page that they make."""

from __future__ import annotations

import importlib
import json
from dataclasses import replace

import jaxtyping
import numpy as np
import pytest
import torch

from sparing.core.errors import SparingError
from sparing.core.record import Record
from sparing.layers.plan import Plan
from sparing.measure.inputs import InputTimes

PLAN = Plan((6,) * 5, (768,) * 5, exits=(3, 4), threshold=0.75)
SHARES = {3: 0.878, 4: 0.081, 5: 0.041}


@pytest.fixture
def forms():
    return importlib.import_module("slim_shape_forms")


@pytest.fixture
def shapes():
    return importlib.import_module("slim_shapes")


@pytest.fixture
def tiny(forms):
    return forms.Shape("minilm", 4, 4, 16, 32)


def run_of_slim(plan=PLAN, shares=SHARES):
    bound = {"plan": json.dumps(plan.to_dict())}
    records = [Record("disagreement_bound", 0.1, "share", "measured", bound)]
    return records + [
        Record("exit_rate", share, "share", "measured", {"layer": layer})
        for layer, share in shares.items()
    ]


def test_a_recorded_plan_is_carried_over_by_shares(forms):
    same = forms.recorded_plan("SST-2", run_of_slim(), forms.MINILM)
    assert same.plan == replace(PLAN, threshold=forms.THRESHOLD)
    assert same.shares == pytest.approx((0.878, 0.081, 0.041))
    large = forms.recorded_plan("SST-2", run_of_slim(), forms.SHAPES["bert-base"])
    assert large.plan.heads == (6,) * 10
    assert large.plan.neurons == (1536,) * 10
    assert large.plan.exits == (6, 8)
    assert large.shares == same.shares
    with pytest.raises(SparingError, match="no plan"):
        forms.recorded_plan("SST-2", [], forms.MINILM)


def test_the_committed_runs_can_be_carried_over(forms, shapes):
    for task, records in shapes.committed().items():
        recorded = forms.recorded_plan(task, records, forms.SHAPES["bert-base"])
        assert sum(recorded.shares) == pytest.approx(1)
        assert recorded.plan.layers <= 12


def test_counts_are_the_nearest_that_sum(forms):
    assert forms.counts((0.878, 0.081, 0.041), 8) == [7, 1, 0]
    assert forms.counts((0.31, 0.69), 8) == [2, 6]
    assert forms.counts((0.5, 0.5), 1) == [1, 0]
    assert forms.counts((1.0,), 8) == [8]


def test_shares_must_fit_the_plan(forms):
    with pytest.raises(SparingError, match="one for each exit"):
        forms.Ours("wrong", PLAN, (0.5, 0.5))
    with pytest.raises(SparingError, match="sum to 1"):
        forms.Ours("wrong", PLAN, (0.5, 0.4, 0.2))


def test_plans_of_a_shape_cut_what_their_names_say(forms):
    by_name = {ours.name: ours.plan for ours in forms.plans(forms.MINILM)}
    assert by_name["width 1/2"].heads == (6,) * 6
    assert by_name["width 2/3"].neurons == (1024,) * 6
    assert by_name["layers 2/3"].layers == 4
    assert by_name["tokens 0.5"].heads == (12,) * 6
    assert by_name["tokens 0.5"].tokens_kept == 0.5
    assert by_name["tokens 0.5"].tokens_after == 2


def test_a_steered_model_lets_inputs_leave_where_they_are_told(forms, tiny, tmp_path):
    plan = Plan((2, 2, 2, 2), (16,) * 4, exits=(2, 3), threshold=forms.THRESHOLD, tokens_kept=0.5)
    ours = forms.Ours("mix", plan, (0.5, 0.25, 0.25))
    model = forms.Forms(tiny, [ours], tmp_path, compiled=False).frozen(ours)
    exits = [0, 2, 1, 1, 2, 0]
    with torch.inference_mode():
        left = model(**forms.inputs(exits, 33, seed=3)).layers
    assert left.tolist() == [2, 4, 3, 3, 4, 2]


def test_a_form_is_the_mean_over_places_or_one_mixed_batch(forms, shapes):
    ours = forms.Ours("mix", PLAN, (0.7, 0.3, 0.0))
    assert shapes.parts_of(ours, 1) == [([0], 0.7), ([1], 0.3)]
    assert shapes.parts_of(ours, 4) == [([0, 0, 0, 1], 1.0)]
    samples = {"a": np.array([1.0, 2.0]), "b": np.array([10.0, 20.0])}
    mixed_times = shapes.mixed(samples, {"mix|eager": [("a", 0.7), ("b", 0.3)]})
    assert mixed_times["mix|eager"].tolist() == pytest.approx([3.7, 7.4])


def rows(shapes):
    steady = np.array([1.0, 1.01, 0.99, 1.0, 1.02, 0.98, 1.0])
    return {
        "dense|eager": 10 * steady,
        "dense|onnxruntime": 8 * steady,
        f"{shapes.FREE}|eager": 7 * steady,
        "width 1/2|eager": 4 * steady[::-1],
        "width 1/2|onnxruntime": 2 * steady,
    }


def test_speed_is_over_the_fastest_dense_form(shapes):
    of = {"shape": "minilm", "batch": 1, "tokens": 128}
    records = shapes.speed_records(rows(shapes), of)
    by_key = {(r.name, r.labels.get("arm"), r.labels["engine"]): r for r in records}
    best = by_key["speed_up", "width 1/2", "onnxruntime"]
    assert best.value == pytest.approx(4)
    assert best.labels["over"] == "onnxruntime"
    low, high = by_key["speed_up", "width 1/2", "eager"].interval
    assert low < 2 < high
    assert ("speed_up", "dense", "onnxruntime") not in by_key
    assert by_key["speed_up", "dense", "eager"].value == pytest.approx(0.8)
    assert by_key["attention_share", None, "eager"].value == pytest.approx(0.3)


def test_an_expected_step_is_the_mean_over_drawn_widths():
    training = importlib.import_module("slim_shape_training")
    times = [InputTimes(np.array([[8.0, 16.0]]), []), InputTimes(np.array([[4.0, 8.0]]), [])]
    step = training.expected(times, (0.5, 1.5))
    assert step.times_ms.tolist() == [[5.0, 10.0]]


def test_generated_texts_grow_from_batch_to_batch():
    training = importlib.import_module("slim_shape_training")
    name, text_batches = training.batches(None, 3)
    lengths = [batch["input_ids"].shape[1] for batch in text_batches]
    assert name == "generated"
    assert lengths == sorted(lengths)
    assert training.GENERATED[0] < lengths[0] < lengths[-1] < training.GENERATED[1]


def test_the_page_holds_every_part(shapes):
    of = {"shape": "minilm", "batch": 1, "tokens": 128}
    records = shapes.speed_records(rows(shapes), of)
    for arm, flops in (("dense", 100), (shapes.FREE, 80), ("width 1/2", 50)):
        records.append(Record("flops", flops, "FLOP", "measured", {**of, "arm": arm}))
    records.append(Record("attention_flops_share", 0.2, "share", "modelled", dict(of)))
    for arm, peak in (("dense", 100 * 2**20), ("width 1/2", 75 * 2**20), ("tokens", 85 * 2**20)):
        where = {"shape": "minilm", "arm": arm, "engine": "eager", "batch": 8, "tokens": 512}
        records.append(Record("peak_bytes", peak, "bytes", "measured", where))
        records.append(Record("weight_bytes", 2**20, "bytes", "measured", where))
    step = {"precision": "float32", "attention_dropout": True, "texts": "mrpc", "batch": 32}
    for name, value in (("fine-tune", 100.0), ("distil", 130.0)):
        records.append(Record("step_ms", value, "ms", "measured", {**step, "step": name}))
    records.append(Record("step_overhead", 0.3, "share", "measured", step, (0.2, 0.4)))
    page = shapes.page(records, {"SST-2": {"dense": 500.0, "slim": 1000.0}})
    assert "| dense | ONNX Runtime | **8** | 1 | 100 % |" in page
    assert "| width 1/2 | ONNX Runtime | 2 | 4.00 (4.00 to 4.00) | 50 % |" in page
    assert "30 (30 to 30) % of the dense model's time" in page
    assert "| width 1/2 | PyTorch | 75 | +25 % | yes | 1.0 |" in page
    assert "| tokens | PyTorch | 85 | +15 % | no | 1.0 |" in page
    assert "| mrpc | float32 | yes | 100 | 130 | 30 (20 to 40) % |" in page
    assert "| SST-2 | 500 | 1000 | +200 % |" in page
    assert shapes.FREE not in page


@pytest.fixture
def unchecked():
    """An export's sizes are symbols, which the checks of annotations do not know."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
def test_a_cell_runs_from_end_to_end(forms, shapes, tiny, tmp_path):
    plan = Plan((2, 2, 2), (16,) * 3, exits=(1, 2), threshold=forms.THRESHOLD)
    every = [forms.Ours("mix", plan, (0.5, 0.25, 0.25)), forms.plans(tiny)[4]]
    built = forms.Forms(tiny, every, tmp_path, compiled=False)
    for batch in (1, 4):
        records = shapes.speed(built, batch, 32, 5)
        assert {r.labels["arm"] for r in records if r.name == "speed_up"} >= {"mix", "tokens 0.5"}
        flops = {r.labels["arm"]: r.value for r in records if r.name == "flops"}
        assert flops["mix"] < 0.5 * flops["dense"]
        assert "mix" in shapes.page(records, {})
