"""``sparing swap`` and ``sparing measure``."""

from __future__ import annotations

import json

import pytest
import torch
from transformers import AutoTokenizer, GPT2Config, GPT2LMHeadModel

import sparing
from tests.cli.conftest import memory_in_this_process


def test_a_swapped_model_opens_again_with_its_tokenizer(command, bert, tmp_path):
    model_dir = tmp_path / "swapped"
    ended = command("swap", bert, "linformer", "--set", "slots=8", "--output-dir", model_dir)
    assert ended.code == 0, ended.err
    assert "3 layers swapped, 0 left" in ended.out
    assert "untrained: 2,304 parameters" in ended.out
    assert "8 random rows of 48 tokens" in ended.out
    assert "output error" in ended.out
    assert sparing.load(model_dir).config.sparing["swap"][0]["options"]["slots"] == 8
    assert AutoTokenizer.from_pretrained(model_dir)("good film")["input_ids"] == [2, 8, 6, 3]


def test_a_plan_and_texts(command, bert, tmp_path):
    plan, texts = tmp_path / "plan.json", tmp_path / "texts.txt"
    plan.write_text(json.dumps({"0": "softmax", "2": ["window", {"radius": 1}]}))
    texts.write_text("the film was good\n\nbad film\n")
    arguments = ("swap", bert, "--plan", plan, "--texts", texts)
    facts = command(*arguments, "--output-dir", tmp_path / "swapped", "--json").json
    assert [layer["mechanism"] for layer in facts["swapped"]] == ["softmax", "window"]
    assert [layer["index"] for layer in facts["left"]] == [1]
    distance = facts["distance_before_training"]
    assert distance["inputs"] == "2 texts"
    errors = list(distance["layers"].values())
    assert errors[0] < 1e-5 < errors[1]


def test_named_layers_alone(command, bert, tmp_path):
    arguments = ("swap", bert, "window", "--layers", "1-2", "--output-dir", tmp_path / "swapped")
    facts = command(*arguments, "--json").json
    assert [layer["index"] for layer in facts["swapped"]] == [1, 2]


def test_a_causal_model_refuses_what_cannot_be_causal(command, tmp_path):
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=20, n_positions=32, n_embd=8, n_layer=2, n_head=2)
    GPT2LMHeadModel(config).save_pretrained(tmp_path / "gpt2")
    arguments = ("swap", tmp_path / "gpt2", "--output-dir", tmp_path / "swapped")
    refused = command(*arguments, "linformer")
    assert refused.code == 2
    assert "it is causal and linformer cannot be" in refused.error
    assert command(*arguments, "window").code == 0


def test_nothing_is_left_behind_by_a_failed_save(command, bert, tmp_path, monkeypatch):
    from transformers import BertForSequenceClassification

    def full(self, save_dir, **options):
        save_dir.mkdir(exist_ok=True)
        (save_dir / "half").write_text("half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(BertForSequenceClassification, "save_pretrained", full)
    ended = command("swap", bert, "window", "--output-dir", tmp_path / "swapped")
    assert ended.code == 1
    assert ended.error == "sparing: No space left on device"
    assert list(tmp_path.rglob("half")) == []


def test_a_mechanism_is_measured_beside_dense(command):
    arguments = ("measure", "linformer", "--heads", 2, "--dim", 8, "--tokens", 64)
    arguments += ("--rounds", 5, "--energy-seconds", 0.01, "--set", "slots=16")
    facts = command(*arguments, "--json").json
    assert list(facts["arms"]) == ["softmax", "linformer"]
    assert (facts["scope"], facts["baseline"], facts["threads"]) == ("attention", "softmax", 1)
    ours = facts["arms"]["linformer"]
    assert ours["flops"]["total"] == 2 * (4 * 64 * 16 * 8 + 4 * 64 * 16 * 8)
    assert ours["flops_ratio"] == pytest.approx(0.5)
    low, high = ours["latency_ratio"]["interval"]
    assert low <= ours["latency_ratio"]["value"] <= high
    per_s = 1e3 / ours["latency_ms"]["p50"]
    assert ours["examples_per_s"] == pytest.approx(per_s)
    assert ours["tokens_per_s"] == pytest.approx(64 * per_s)
    assert ours["peak_bytes"] > 0
    assert {e["obtained"] for e in ours["energy_j"].values()} <= {
        "measured",
        "integrated",
        "estimated",
    }
    assert "latency_ratio" not in facts["arms"]["softmax"]


def test_a_swapped_model_is_measured_beside_its_dense_self(command, trained, monkeypatch):
    monkeypatch.setattr("sparing.measure.memory.peak_memory", memory_in_this_process)
    arguments = ("measure", trained, "--batch", 2, "--rounds", 5, "--energy-seconds", 0.01)
    shown = command(*arguments)
    assert shown.code == 0, shown.err
    for words in ("5 tokens, batch 2", "latency ratio", "peak memory", "GFLOP", "energy of cpu"):
        assert words in shown.out
    assert "attention takes" in shown.out
    assert "memory and FLOPs of dense" in shown.err


@pytest.mark.slow
def test_models_are_measured_against_each_other(command, bert, tmp_path):
    model_dir = tmp_path / "swapped"
    assert command("swap", bert, "window", "--output-dir", model_dir).code == 0
    arguments = ("measure", model_dir, "--against", bert, "--tokens", 32, "--rounds", 5)
    facts = command(*arguments, "--energy-seconds", 0.01, "--json").json
    assert facts["baseline"] == str(bert)
    assert 0 < facts["attention_share"]["value"] < 1
    arguments = ("measure", bert, "--rounds", 5, "--energy-seconds", 0.01)
    alone = command(*arguments, "--json").json
    assert list(alone["arms"]) == [str(bert)]
    assert alone["tokens"] == 48, "all that the model reads"


def test_a_damaged_tokenizer_is_named(command, bert, copy_of, tmp_path):
    spoilt = copy_of(bert)
    (spoilt / "tokenizer.json").write_text("{")
    ended = command("swap", spoilt, "window", "--output-dir", tmp_path / "out")
    assert (ended.code, "tokenizer" in ended.err) == (1, True)


def test_a_mounted_folder_is_filled(tmp_path, monkeypatch, bert):
    from pathlib import Path

    from sparing.core.scratch import MARK, MARKED
    from sparing.export.saving import require_new, save_model

    volume = tmp_path / "volume"
    left = volume / ".model.abc.part"  # of a process that was killed
    (left / "content").mkdir(parents=True)
    (left / MARK).write_bytes(MARKED)
    monkeypatch.setattr(Path, "is_mount", lambda self: self == volume)
    require_new(volume)
    save_model(sparing.load(bert), str(bert), volume)
    names = {path.name for path in volume.iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= names
    assert not any(name.endswith(".part") for name in names)
    assert type(sparing.load(volume)) is type(sparing.load(bert))
