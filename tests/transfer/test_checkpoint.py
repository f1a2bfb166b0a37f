"""Saved and loaded: the same values, types and outputs, or one clear line about what is wrong."""

from __future__ import annotations

import json

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import sparing
from sparing.core.errors import CheckpointError
from sparing.core.tolerance import tolerance
from sparing.testing.subjects import entries
from tests.transfer.families import OUTSIDE, build, inputs, output

MECHANISMS = {name: dict(entries(name)[0].options[0]) for name in sparing.mechanisms()}
MECHANISMS |= {
    "linformer": {"slots": 4, "sharing": "layerwise"},
    "kerformer": {"seed": 3},
    "tests.transfer.reader": {"gain": 0.5},
}


@pytest.fixture
def saved(tmp_path):
    """A folder with a swapped BERT, and the model."""
    model = build("bert")
    sparing.swap(model, "kerformer", layers="0-1", seed=5)
    model.save_pretrained(tmp_path)
    return tmp_path, model


def _edit(folder, change):
    file = folder / "config.json"
    config = json.loads(file.read_text())
    change(config)
    file.write_text(json.dumps(config))


def _assert_equal(loaded, model):
    state, expected = loaded.state_dict(), model.state_dict()
    assert list(state) == list(expected)
    for name, value in expected.items():
        assert state[name].dtype == value.dtype
        assert torch.equal(state[name], value), name


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_what_is_saved_comes_back(mechanism, tmp_path):
    model, given = build("bert"), inputs("bert")
    report = sparing.swap(model, mechanism, tokens=20, **MECHANISMS[mechanism])
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".sparing." in name:
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
    model.save_pretrained(tmp_path)
    loaded = sparing.load(tmp_path)
    assert type(loaded) is type(model)
    assert not loaded.training
    _assert_equal(loaded, model)
    torch.testing.assert_close(output(loaded, given), output(model, given), rtol=1e-12, atol=1e-12)
    mechanisms = [layer.get_submodule("sparing") for layer in _swapped(loaded)]
    assert [module.options() for module in mechanisms] == [
        layer.options for layer in report.swapped
    ]
    assert {module.heads.tokens for module in mechanisms} == {20}
    assert loaded.config.sparing == model.config.sparing


def _swapped(model):
    return [module for module in model.modules() if "sparing" in module._modules]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("family", ["vit", "llama", "bart", "modernbert", "mpnet", "deberta-v2"])
def test_families_and_types_come_back(family, dtype, tmp_path):
    """transformers renames some families' weights while saving; ours move along."""
    model = build(family, dtype=dtype)
    sparing.swap(model, "kerformer", **({"bias": "drop"} if family in OUTSIDE else {}))
    model.save_pretrained(tmp_path)
    loaded = sparing.load(tmp_path)
    _assert_equal(loaded, model)
    given = inputs("vit" if family == "vit" else family)
    if "pixel_values" in given:
        given["pixel_values"] = given["pixel_values"].to(dtype)
    near = tolerance(dtype)
    torch.testing.assert_close(
        output(loaded, given), output(model, given), rtol=near.relative, atol=near.absolute
    )
    states = model(**given, output_hidden_states=True)
    name = "encoder_hidden_states" if family == "bart" else "hidden_states"
    assert len(states[name]) == len(loaded(**given, output_hidden_states=True)[name]) > 1


def test_saved_again_swapped_again_and_unswapped_after_loading(saved, tmp_path):
    folder, model = saved
    loaded, given = sparing.load(folder), inputs("bert")
    loaded.save_pretrained(tmp_path / "again")
    _assert_equal(sparing.load(tmp_path / "again"), model)
    sparing.swap(loaded, "softmax")
    sparing.unswap(loaded)
    sparing.unswap(model)
    torch.testing.assert_close(output(loaded, given), output(model, given), rtol=1e-12, atol=1e-12)


def test_an_earlier_name_in_a_folder_is_read_and_saved_as_todays(tmp_path):
    model, given = build("bert"), inputs("bert")
    sparing.swap(model, "difference", layers="0", threshold=0.5)
    model.save_pretrained(tmp_path / "old")

    def rename(config):
        config["sparing"]["swap"][0]["mechanism"] = "delta"

    _edit(tmp_path / "old", rename)
    loaded = sparing.load(tmp_path / "old")
    torch.testing.assert_close(output(loaded, given), output(model, given), rtol=1e-12, atol=1e-12)
    loaded.save_pretrained(tmp_path / "new")
    saved = json.loads((tmp_path / "new" / "config.json").read_text())
    assert [row["mechanism"] for row in saved["sparing"]["swap"]] == ["difference"]


def test_a_model_saved_without_us_loads_as_before(tmp_path):
    model, given = build("bert"), inputs("bert")
    model.save_pretrained(tmp_path)
    loaded = sparing.load(str(tmp_path))
    assert type(loaded) is transformers.BertForMaskedLM
    torch.testing.assert_close(output(loaded, given), output(model, given), rtol=1e-12, atol=1e-12)


def test_an_unswapped_model_saves_as_if_never_swapped(tmp_path):
    model = build("bert")
    sparing.swap(model, "kerformer")
    sparing.unswap(model)
    model.save_pretrained(tmp_path)
    assert "sparing" not in json.loads((tmp_path / "config.json").read_text())
    assert isinstance(sparing.load(tmp_path), transformers.BertForMaskedLM)


def test_missing_unexpected_and_misshapen_weights(saved):
    folder, _ = saved
    file = folder / "model.safetensors"
    weights = load_file(file)
    name = next(name for name in weights if ".sparing." in name)
    without = {key: value for key, value in weights.items() if key != name}
    for changed, message in (
        (without, f"missing weights: {name}"),
        ({**weights, "bert.extra": torch.ones(1)}, r"unexpected weights: bert\.extra"),
        ({**weights, name: torch.ones(3, 5, 7)}, "mismatched weights: .*sparing"),
    ):
        save_file(changed, file, metadata={"format": "pt"})
        with pytest.raises(sparing.core.errors.CheckpointError, match=message):
            sparing.load(folder)


def _set(key, value):
    return lambda config: config.__setitem__(key, value)


def _set_entry(key, value):
    return lambda config: config["sparing"].__setitem__(key, value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_set("sparing", "yes"), "not one that sparing wrote"),
        (_set("sparing", {"swap": []}), "not one that sparing wrote"),
        (_set_entry("version", 2), r"newer sparing \(version 2\)"),
        (_set_entry("steps", {}), "newer sparing"),
        (_set_entry("patches", {}), "selection of patches is damaged"),
        (_set_entry("swap", []), "lists no layers"),
        (_set_entry("swap", [{"layer": 0}]), "damaged layer"),
        (lambda c: c["sparing"]["swap"][0].update(layer=9), "no self-attention layer 9"),
        (lambda c: c["sparing"]["swap"][0].update(mechanism="kerfomer"), "did you mean"),
        (lambda c: c["sparing"]["swap"][0].update(options={"x": 1}), "no option 'x'"),
        (_set("architectures", None), "names no model class"),
        (_set("architectures", ["Nonsense"]), r"names no model class .*Nonsense"),
        (_set("architectures", ["AutoModel"]), "names no model class"),
        (_set("model_type", None), "no model_type"),
        (_set("num_attention_heads", 5), "weights cannot be read|does not fit"),
    ],
)
def test_damaged_configurations(saved, change, message):
    folder, _ = saved
    _edit(folder, change)
    with pytest.raises(sparing.core.errors.CheckpointError, match=message) as caught:
        sparing.load(folder)
    assert "\n" not in str(caught.value)


def test_files_that_are_not_what_they_should_be(saved, tmp_path):
    folder, _ = saved
    file = folder / "model.safetensors"
    whole = file.read_bytes()
    for content in (whole[: len(whole) // 2], b"", b"not safetensors at all"):
        file.write_bytes(content)
        with pytest.raises(sparing.core.errors.CheckpointError, match="weights cannot be read"):
            sparing.load(folder)
    file.unlink()
    with pytest.raises(sparing.core.errors.CheckpointError, match="weights cannot be read"):
        sparing.load(folder)
    for content in ("{cut", "[1, 2]", '{"hidden_size": 4}'):
        (folder / "config.json").write_text(content)
        with pytest.raises(sparing.core.errors.CheckpointError, match=r"config\.json"):
            sparing.load(folder)
    with pytest.raises(sparing.core.errors.CheckpointError, match=r"no config\.json"):
        sparing.load(tmp_path / "nowhere")


def test_options_that_cannot_be_saved_are_refused_at_once():
    model, given = build("bert"), inputs("bert")
    before = output(model, given)
    with pytest.raises(sparing.UsageError, match="cannot be saved"):
        sparing.swap(model, "tests.transfer.reader", gain=torch.ones(1))
    assert torch.equal(output(model, given), before)


def test_a_model_without_a_swap_must_be_whole_too(tmp_path):
    build("bert").save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    save_file({k: v for k, v in tensors.items() if "layer.1." not in k}, file, {"format": "pt"})
    with pytest.raises(CheckpointError, match=r"missing weights: bert\.encoder\.layer\.1"):
        sparing.load(tmp_path)
    name = next(name for name in tensors if name.endswith("layer.1.output.dense.weight"))
    save_file({**tensors, name: tensors[name][:1].clone()}, file, {"format": "pt"})
    with pytest.raises(CheckpointError, match="mismatched weights"):
        sparing.load(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"hidden_size": "abc"},
        {"num_attention_heads": 0},
        {"hidden_act": "foo"},
        {"dtype": "float99"},
    ],
)
def test_a_spoilt_configuration_gives_one_line(tmp_path, change):
    build("bert").save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    with pytest.raises(CheckpointError, match=r"cannot be read|configuration is damaged"):
        sparing.load(tmp_path)
