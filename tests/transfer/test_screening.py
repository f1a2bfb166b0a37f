"""Sizes that the weights do not have, and weights that are no numbers, are refused at once."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM

import sparing
from sparing.core.errors import CheckpointError
from sparing.foreign import pretrained, screening
from sparing.transfer.opening import open_model
from tests.transfer.classifiers import dense

FORMS = ("plain", "swapped", "pruned", "adaptive")


def _saved(form, folder):
    model = dense(dtype=torch.float32)
    if form == "swapped":
        sparing.swap(model, "linformer", slots=4)
    if form == "pruned":
        sparing.prune(model, {0: [1], 2: [0, 3]})
    if form == "adaptive":
        model = sparing.adapt(model)
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    top = tmp_path_factory.mktemp("forms")
    return {form: _saved(form, top / form) for form in FORMS}


def _changed(folder, target, **changes):
    copy = shutil.copytree(folder, target)
    config = json.loads((copy / "config.json").read_text())
    config.update(changes)
    (copy / "config.json").write_text(json.dumps(config))
    return copy


def _require_one_line(error, folder):
    assert "\n" not in str(error.value)
    assert str(folder) in str(error.value)
    assert len(str(error.value)) < 400


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_weights_that_are_not_finite(form, bad, folders, tmp_path):
    folder = shutil.copytree(folders[form], tmp_path / "copy")
    weights = load_file(folder / "model.safetensors")
    name = sorted(name for name in weights if name.endswith("classifier.weight"))[-1]
    weights[name][0, 0] = bad
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(CheckpointError, match=f"the weights {name} are not finite") as error:
        sparing.load(folder)
    _require_one_line(error, folder)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "changes",
    [
        {"num_hidden_layers": 10**6},
        {"num_hidden_layers": 10**12},
        {"num_hidden_layers": 101},
        {"hidden_size": 10**9},
        {"hidden_size": 10**6},
        {"vocab_size": 10**12},
        {"vocab_size": 10**9},
        {"max_position_embeddings": 10**9},
        {"intermediate_size": 10**8},
        {"type_vocab_size": 10**10},
        {"num_labels": 10**9, "id2label": None},
        {"num_attention_heads": 10**7},
    ],
    ids=str,
)
def test_sizes_that_the_weights_do_not_have(form, changes, folders, tmp_path):
    folder = _changed(folders[form], tmp_path / "copy", **changes)
    with pytest.raises(CheckpointError, match=r"its weights|needs one width") as error:
        sparing.load(folder)
    _require_one_line(error, folder)


def _with_layers(entry, count):
    row = entry["sparing"]["adaptive"]["sizes"][0]
    entry["sparing"]["adaptive"]["sizes"] = [row] * count
    return entry["sparing"]


def test_an_adaptive_model_with_too_many_layers(folders, tmp_path):
    config = json.loads((folders["adaptive"] / "config.json").read_text())
    changes = {"sparing": _with_layers(config, 10**4)}
    folder = _changed(folders["adaptive"], tmp_path / "copy", **changes)
    with pytest.raises(CheckpointError, match="layers = 10000") as error:
        sparing.load(folder)
    _require_one_line(error, folder)


@pytest.mark.parametrize("change", [{"tokens": 10**12}, {"options": {"slots": 10**9}}])
def test_a_mechanism_that_is_too_large(change, folders, tmp_path):
    config = json.loads((folders["swapped"] / "config.json").read_text())
    config["sparing"]["swap"][0].update(change)
    folder = _changed(folders["swapped"], tmp_path / "copy", **config)
    with pytest.raises(CheckpointError, match="its weights cannot have") as error:
        sparing.load(folder)
    _require_one_line(error, folder)


def test_layers_of_shards_count(folders, tmp_path):
    shutil.copytree(folders["plain"], tmp_path / "copy")
    dense(dtype=torch.float32).save_pretrained(tmp_path / "copy", max_shard_size="8KB")
    (tmp_path / "copy" / "model.safetensors").unlink()
    shapes = screening.weight_shapes(tmp_path / "copy")
    assert shapes == screening.weight_shapes(folders["plain"])
    assert type(sparing.load(tmp_path / "copy")) is type(dense())
    changed = _changed(tmp_path / "copy", tmp_path / "changed", num_hidden_layers=500)
    with pytest.raises(CheckpointError, match="num_hidden_layers = 500"):
        sparing.load(changed)
    index = tmp_path / "copy" / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "../plain/model.safetensors"}}))
    with pytest.raises(CheckpointError, match="names files outside its folder"):
        sparing.load(tmp_path / "copy")


def test_pickled_weights_are_held_against_their_configuration(folders, tmp_path):
    folder = shutil.copytree(folders["plain"], tmp_path / "copy")
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(weights, folder / "pytorch_model.bin")
    assert screening.weight_shapes(folder) == screening.weight_shapes(folders["plain"])
    assert type(sparing.load(folder)) is type(dense())


@pytest.mark.parametrize("name", ["plain", "adaptive"])
def test_a_hub_name_is_held_against_its_weights_too(name, folders, tmp_path, monkeypatch):
    commit = "0" * 40
    home = tmp_path / "models--lab--small"
    (home / "refs").mkdir(parents=True)
    (home / "refs" / "main").write_text(commit)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    changes = {"num_hidden_layers": 500, "hidden_size": 10**9}
    _changed(folders[name], home / "snapshots" / commit, **changes)
    with pytest.raises(CheckpointError, match="lab/small: its configuration says"):
        open_model("lab/small")


def test_models_that_are_as_they_say_are_taken(tmp_path):
    sizes = {"vocab_size": 100, "hidden_size": 16, "intermediate_size": 32}
    heads = {"num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1}
    config = LlamaConfig(**sizes, **heads, max_position_embeddings=2**20, rope_theta=10**7)
    LlamaForCausalLM(config).save_pretrained(tmp_path)
    assert pretrained.open_config(tmp_path).max_position_embeddings == 2**20
    assert type(sparing.load(tmp_path)) is LlamaForCausalLM
