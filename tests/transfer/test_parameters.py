"""New parameters: there before the optimizer, of the right kind, started and reported."""

from __future__ import annotations

import json

import pytest
import torch

import sparing
from tests.transfer.families import build, inputs, output


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_new_parameters_are_like_the_layers(dtype):
    model = build("bert", dtype=dtype)
    known = {name for name, _ in model.named_parameters()}
    report = sparing.swap(model, "kerformer")
    new = {name: value for name, value in model.named_parameters() if name not in known}
    assert new
    assert all(".attention.self.sparing." in name for name in new)
    assert {value.dtype for value in new.values()} == {dtype}
    assert {buffer.dtype for buffer in model.buffers() if buffer.is_floating_point()} <= {dtype}
    assert report.untrained_params == sum(value.numel() for value in new.values())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    held = {id(value) for group in optimizer.param_groups for value in group["params"]}
    assert {id(value) for value in new.values()} <= held


def test_new_parameters_go_to_the_layers_device():
    model = build("bert").to("meta")
    sparing.swap(model, "kerformer")
    assert {value.device.type for value in model.parameters()} == {"meta"}


def test_mechanisms_follow_the_models_mode():
    model = build("bert").train()
    sparing.swap(model, "softmax")
    assert all(module.training for module in model.modules())


def test_init_from_the_layers_projections():
    model = build("bert")
    report = sparing.swap(model, "tests.transfer.reader", layers=[0])
    layer = model.bert.encoder.layer[0].attention.self
    assert torch.equal(layer.sparing.projection, layer.query.weight)
    assert torch.equal(layer.sparing.shift, layer.query.bias)
    assert report.untrained_params == 0


def test_tokens_are_the_position_limit_unless_given():
    model = build("roberta")
    assert {layer.tokens for layer in sparing.swap(model, "linformer", slots=4).swapped} == {38}
    report = sparing.swap(model, "linformer", slots=4, tokens=12)
    assert {layer.tokens for layer in report.swapped} == {12}
    with pytest.raises(sparing.UsageError):
        output(model, inputs("roberta", "none", tokens=13))


def test_layerwise_projections_are_one():
    model = build("bert")
    report = sparing.swap(model, "linformer", slots=4, sharing="layerwise", tokens=9)
    new = [name for name in model.state_dict() if ".sparing." in name]
    assert new == ["bert.encoder.layer.0.attention.self.sparing.key_projection"]
    assert report.untrained_params == 4 * 9
    given = inputs("bert")
    model(**given)["logits"].sum().backward()
    assert model.get_parameter(new[0]).grad.abs().max() > 0


def test_attention_dropout_is_taken_over_or_reported():
    model = build("bert", attention_probs_dropout_prob=0.25)
    report = sparing.swap(model, "softmax")
    assert report.swapped[0].options == {"dropout": 0.25}
    assert report.swapped[0].dropout_off == 0
    assert sparing.swap(model, "softmax", dropout=0.0).swapped[0].options == {"dropout": 0.0}
    report = sparing.swap(model, "linear")
    assert report.swapped[0].dropout_off == 0.25
    assert "attention dropout is off in swapped layers (it was 0.25)" in str(report)


def test_the_report_says_what_happened():
    model = build("modernbert")
    report = sparing.swap(model, "kerformer", layers=[0])
    text = str(report)
    assert text.splitlines()[0] == "ModernBertModel: 1 layers swapped, 2 left"
    assert "0: kerformer(tokens=40) [layers.0.attn]" in text
    assert "1, 2: left: it was not chosen" in text
    assert "untrained:" in text
    facts = json.loads(json.dumps(report.to_dict()))
    assert facts["swapped"][0]["name"] == "layers.0.attn"
    assert facts["untrained_params"] == report.untrained_params > 0
    assert [layer["index"] for layer in facts["left"]] == [1, 2]


def test_projections_that_nothing_reads_are_named():
    model = build("bert")
    report = sparing.swap(model, "tests.transfer.valueless", layers=[1])
    assert report.swapped[0].unused == ("bert.encoder.layer.1.attention.self.value",)
    assert "unused: bert.encoder.layer.1.attention.self.value" in str(report)
    assert output(model, inputs("bert")).isfinite().all()
