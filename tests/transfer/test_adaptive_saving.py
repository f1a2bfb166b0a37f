"""An adaptive model comes back as it was saved, or one line says what is wrong with it."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import PreTrainedConfig

import sparing
from sparing.core.errors import CheckpointError
from sparing.layers.plan import full_plan, narrowed, narrowing
from sparing.train import checkpoints
from sparing.transfer.adapting.adapt import adapt
from sparing.transfer.adaptive import AdaptiveClassifier, FrontierPoint
from tests.transfer.classifiers import FAMILIES, RELATIVE, dense, inputs, near, texts


def _adaptive(family="bert", dtype=torch.float64, seed=0):
    """An adaptive model with everything that there is to lose."""
    adaptive = adapt(dense(family, dtype=dtype, seed=seed), exits=[2, 3])
    with torch.no_grad():
        for number, head in enumerate(adaptive.encoder.heads.values()):
            head.classifier.bias += number
    sizes = adaptive.encoder.sizes
    dropping = 1.0 if family in RELATIVE else 0.6
    cheap = replace(narrowed(sizes, 0.5), exits=(2,), threshold=0.7, tokens_kept=dropping)
    adaptive.set_frontier(
        [
            FrontierPoint(cheap, 0.31, 0.875),
            FrontierPoint(narrowed(sizes, 0.75), 0.72, None),
            FrontierPoint(narrowing(narrowed(sizes, 0.9), 0.5, after=2, above=0.8), 0.8, 0.5),
        ]
    )
    adaptive.budget = 0.5
    return adaptive


def _assert_equal(loaded, original):
    assert list(loaded.state_dict()) == list(original.state_dict())
    for name, value in original.state_dict().items():
        assert loaded.state_dict()[name].dtype == value.dtype
        assert torch.equal(loaded.state_dict()[name], value), name


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_saved_comes_back(family, tmp_path):
    adaptive = _adaptive(family)
    adaptive.save_pretrained(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "model.safetensors"]
    loaded = sparing.load(tmp_path)
    assert type(loaded) is AdaptiveClassifier
    assert not loaded.training
    _assert_equal(loaded, adaptive)
    assert loaded.plan == adaptive.plan
    assert loaded.frontier == adaptive.frontier
    assert loaded.budget == 0.31
    assert loaded.encoder.exits == (2, 3, 4)
    assert loaded.config.sparing == adaptive.config.sparing
    with torch.no_grad():
        output, expected = loaded(**inputs(family)), adaptive(**inputs(family))
    assert torch.equal(output.logits, expected.logits)
    assert torch.equal(output.layers, expected.layers)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_types_come_back(dtype, tmp_path):
    adaptive = _adaptive(dtype=dtype)
    adaptive.save_pretrained(str(tmp_path / "deeper" / "folder"))
    loaded = sparing.load(tmp_path / "deeper" / "folder")
    _assert_equal(loaded, adaptive)
    assert loaded.dtype == dtype


def test_a_type_given_later_is_the_one_that_is_saved(tmp_path):
    adaptive = _adaptive(dtype=torch.float32).double()
    adaptive.save_pretrained(tmp_path)
    assert sparing.load(tmp_path).dtype == torch.float64


def test_saved_again_after_loading(tmp_path):
    adaptive = _adaptive()
    adaptive.save_pretrained(tmp_path / "first")
    loaded = sparing.load(tmp_path / "first")
    loaded.budget = 1.0
    loaded.save_pretrained(tmp_path / "second")
    again = sparing.load(tmp_path / "second")
    _assert_equal(again, adaptive)
    assert again.plan == full_plan(again.encoder.sizes)
    assert again.frontier == adaptive.frontier
    for name in ("config.json", "model.safetensors"):
        adaptive.save_pretrained(tmp_path / "first again")
        before = (tmp_path / "first" / name).read_bytes()
        assert (tmp_path / "first again" / name).read_bytes() == before, "saving draws nothing"


def _edit(folder, change):
    file = folder / "config.json"
    config = json.loads(file.read_text())
    change(config)
    file.write_text(json.dumps(config))


def _entry(**changes):
    return lambda config: config["sparing"]["adaptive"].update(changes)


def _plan(**changes):
    return lambda config: config["sparing"]["adaptive"]["plan"].update(changes)


def _drop(name):
    return lambda config: config["sparing"]["adaptive"].pop(name)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    _adaptive().save_pretrained(folder)
    return folder


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c["sparing"].update(version=2), r"newer sparing \(version 2\); update"),
        (lambda c: c["sparing"].update(version="one"), "not one that sparing wrote"),
        (lambda c: c["sparing"].pop("version"), "not one that sparing wrote"),
        (lambda c: c["sparing"].update(adaptive=[1]), "is damaged"),
        (_drop("sizes"), "is damaged: KeyError: 'sizes'"),
        (_drop("exits"), "is damaged: KeyError: 'exits'"),
        (_entry(sizes=[[4, 4, 4]]), "is damaged"),
        (_entry(sizes=[["4", 4, 4, 24]] * 4), "is damaged"),
        (_entry(sizes=[[-4, 4, 4, 24]] * 4), "is damaged"),
        (_entry(sizes=[[2, 4, 4, 24]] * 4), "is damaged: the plan needs|is damaged"),
        (_entry(sizes=[]), "is damaged"),
        (_entry(exits=[9]), "is damaged: exits are layers from 1 to 4"),
        (_entry(exits=["a"]), "is damaged"),
        (_entry(exits=[4]), "is damaged: there is no exit head after layer 2"),
        (_entry(plan=None), "is damaged"),
        (_entry(frontier=None), "is damaged"),
        (_entry(frontier=[{"cost_share": 0.5}]), "is damaged: not a point of a frontier"),
        (lambda c: c["sparing"]["adaptive"]["frontier"][0].update(cost_share="x"), "is damaged"),
        (_plan(heads=[99] * 4), "is damaged: the plan needs 99 heads"),
        (_plan(heads=[1.5] * 4), "is damaged: not a plan"),
        (_plan(threshold=7.0), "is damaged: threshold must be in"),
        (_plan(depth=3), "is damaged: not a plan"),
        (lambda c: c.update(base_model_type="llama"), "is damaged: 'llama' has no adaptive form"),
        (lambda c: c.update(base_model_type=["bert"]), "is damaged"),
        (lambda c: c.pop("base_model_type"), "is damaged: 'sparing-adaptive' has no adaptive form"),
        (lambda c: c.pop("sparing"), "not one that sparing wrote"),
        (lambda c: c.update(model_type="bert"), "in an older form: its model_type"),
        (lambda c: c.update(hidden_size=20), "model.safetensors|is damaged|its"),
        (lambda c: c.update(num_attention_heads=0), "is damaged"),
        (lambda c: c.update(vocab_size="many"), "is damaged"),
        (lambda c: c.update(num_labels=7, id2label=None), "its encoder.heads.2.classifier"),
        (lambda c: c.update(dtype="float99"), "is damaged"),
    ],
)
def test_damaged_configurations(saved, tmp_path, change, message):
    folder = shutil.copytree(saved, tmp_path / "copy")
    _edit(folder, change)
    with pytest.raises(CheckpointError, match=message) as caught:
        sparing.load(folder)
    assert "\n" not in str(caught.value)
    assert str(folder) in str(caught.value)


def test_weights_that_are_missing_foreign_or_torn(saved, tmp_path):
    folder = shutil.copytree(saved, tmp_path / "copy")
    file = folder / "model.safetensors"
    weights, whole = load_file(file), file.read_bytes()
    name = "encoder.layers.1.output.bias"
    without = {key: value for key, value in weights.items() if key != name}
    for changed, message in (
        (without, f"does not hold {name}"),
        ({**weights, "encoder.extra": torch.ones(1)}, "holds encoder.extra, which the model does"),
        ({**weights, name: torch.ones(3)}, rf"its {name} is \(3,\), the model's is \(16,\)"),
        (dict(dense().state_dict()), "which the model does not have"),
    ):
        save_file(changed, file)
        with pytest.raises(CheckpointError, match=message) as caught:
            sparing.load(folder)
        assert "\n" not in str(caught.value)
    for content in (whole[: len(whole) // 2], b"", b"not safetensors at all"):
        file.write_bytes(content)
        with pytest.raises(CheckpointError, match="cannot be read"):
            sparing.load(folder)
    file.unlink()
    with pytest.raises(CheckpointError, match="cannot be read"):
        sparing.load(folder)


class _PowerCutError(Exception):
    pass


def _cut(monkeypatch, home, name, after):
    """Let the call work ``after`` times, then fail."""
    calls, real = [], getattr(home, name)

    def cut(*arguments, **options):
        calls.append(name)
        if len(calls) > after:
            raise _PowerCutError
        return real(*arguments, **options)

    monkeypatch.setattr(home, name, cut)


CUTS = {
    "while the weights are written": (checkpoints, "save_file", 0),
    "before the configuration is written": (PreTrainedConfig, "save_pretrained", 0),
    "before the old configuration goes": (Path, "unlink", 0),
    "before the weights are moved": (Path, "replace", 1),  # after that of the writing itself
    "between weights and configuration": (Path, "replace", 2),
    "at the end": (shutil, "rmtree", 2),  # after those of the writing itself
}


@pytest.mark.parametrize("cut", CUTS)
def test_a_crash_while_saving_over_another_model_mixes_nothing(cut, tmp_path, monkeypatch):
    old, new, given = _adaptive(seed=0), _adaptive(seed=1), texts([5, 3])
    new.plan = narrowed(new.encoder.sizes, 0.75)
    old.save_pretrained(tmp_path)
    with monkeypatch.context() as patch:
        _cut(patch, *CUTS[cut])
        with pytest.raises(_PowerCutError):
            new.save_pretrained(tmp_path)
    if cut in ("before the weights are moved", "between weights and configuration"):
        with pytest.raises(CheckpointError, match="give a folder that was saved whole"):
            sparing.load(tmp_path)
    else:
        whole, loaded = new if cut == "at the end" else old, sparing.load(tmp_path)
        _assert_equal(loaded, whole)
        assert loaded.plan == whole.plan
    new.save_pretrained(tmp_path)
    loaded = sparing.load(tmp_path)
    _assert_equal(loaded, new)
    near(loaded(**given).logits, new(**given).logits)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "model.safetensors"]
