"""How far a swapped model is from the original: exact where it must be, and the same both ways."""

from __future__ import annotations

import copy

import pytest
import torch

import sparing
from sparing.transfer.distance import distance
from tests.transfer.families import build, inputs, output


def test_softmax_is_no_distance_away():
    model, given = build("bert"), inputs("bert")
    difference = sparing.swap(model, "softmax").distance([given])
    assert difference.output_error < 1e-12
    assert abs(difference.divergence) < 1e-12
    assert set(difference.layers) == {
        f"bert.encoder.layer.{number}.attention.self" for number in range(3)
    }
    assert max(difference.layers.values()) < 1e-12


def test_figures_are_what_they_say():
    model, given = build("bert"), inputs("bert")
    original = copy.deepcopy(model)
    before = output(model, given)
    report = sparing.swap(model, "linear", layers=[0])
    difference = report.distance([given])
    after = output(model, given)
    assert difference.output_error == pytest.approx(float((after - before).norm() / before.norm()))
    old, new = before.softmax(-1), after.softmax(-1)
    expected = (old * (old.log() - new.log())).sum(-1).mean()
    assert difference.divergence == pytest.approx(float(expected))
    assert difference.layers.keys() == {"bert.encoder.layer.0.attention.self"}
    assert distance(original, model, [given]) == difference
    assert "nats" in str(difference)


def test_batches_are_added_up_and_pads_left_out():
    model = build("bert")
    first, second = inputs("bert", tokens=9), inputs("bert", "both", tokens=12)
    report = sparing.swap(model, "linear")
    both = report.distance([first, second]).output_error
    alone = [report.distance([batch]).output_error for batch in (first, second)]
    assert min(alone) < both < max(alone)
    pads = first["attention_mask"] == 0
    other = {**first, "input_ids": first["input_ids"].where(~pads, 2)}
    assert report.distance([other]).output_error == pytest.approx(alone[0], rel=1e-9)


def test_models_without_logits_and_of_images():
    report = sparing.swap(build("deit"), "linear")
    difference = report.distance([inputs("deit")])
    assert difference.divergence is None
    assert difference.output_error > 0
    assert sparing.swap(build("vit"), "linear").distance([inputs("vit")]).divergence > 0


def test_nothing_is_changed_by_looking():
    model, given = build("bert").train(), inputs("bert")
    report = sparing.swap(model, "linear")
    report.distance([given])
    assert model.training
    assert all(parameter.grad is None for parameter in model.parameters())
    layer = model.bert.encoder.layer[0].attention.self
    assert layer.sparing is not None
    assert not layer._forward_hooks
    with pytest.raises(ValueError, match="input_ids"):
        report.distance([{"nonsense": torch.ones(1)}])
    assert layer.sparing is not None


def test_what_distance_needs_is_said():
    model = build("bert")
    with pytest.raises(sparing.UsageError, match="swapped"):
        distance(model, model, [inputs("bert")])
    with pytest.raises(sparing.UsageError, match="at least one batch"):
        sparing.swap(model, "linear").distance([])
