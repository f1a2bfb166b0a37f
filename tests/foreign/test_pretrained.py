"""Folders of others are opened, and nothing in them is run, fetched or followed."""

from __future__ import annotations

import io
import json
import shutil
import sys

import pytest
import torch
from torch import nn
from transformers import (
    AutoModelForSequenceClassification,
    BertConfig,
    BertForSequenceClassification,
    BertTokenizerFast,
)

import sparing
from sparing.advise.model import tokenizer_of as advice_tokenizer
from sparing.cli import main
from sparing.core.errors import CheckpointError, SparingError
from sparing.foreign.pretrained import open_config, open_tokenizer, open_weights
from sparing.foreign.screening import require_finite
from sparing.tasks.shared.text import fast_tokenizer

SIZES = {"vocab_size": 30, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
CODE = "open({mark!r}, 'w')\nclass T: pass\n"


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    config = BertConfig(**SIZES, intermediate_size=8, max_position_embeddings=16)
    BertForSequenceClassification(config).save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "b"]))
    BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)
    return folder


@pytest.fixture
def folder(saved, tmp_path, monkeypatch):
    """A saved model with a stranger's module in it; a prompt to run it is answered with yes."""
    shutil.copytree(saved, tmp_path / "copy")
    (tmp_path / "copy" / "evil.py").write_text(CODE.format(mark=str(tmp_path / "PWNED")))
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n" * 20))
    monkeypatch.chdir(tmp_path)
    yield tmp_path / "copy"
    assert not (tmp_path / "PWNED").exists()


def _change(file, **entries):
    file.write_text(json.dumps({**json.loads(file.read_text()), **entries}))


@pytest.mark.parametrize("opened", [open_tokenizer, advice_tokenizer, fast_tokenizer])
def test_a_tokenizer_that_brings_its_code_is_refused(folder, opened, capsys):
    file = folder / "tokenizer_config.json"
    _change(file, auto_map={"AutoTokenizer": ["evil.T", None]}, tokenizer_class="E")
    (folder / "tokenizer.json").unlink()
    with pytest.raises((SparingError, ValueError)) as raised:
        opened(str(folder))
    assert opened is open_tokenizer or "\n" not in str(raised.value)
    assert "Do you wish to run" not in capsys.readouterr().out


def test_a_configuration_that_brings_its_code_is_refused(folder, capsys):
    names = {"AutoConfig": "evil.T", "AutoModelForSequenceClassification": "evil.T"}
    _change(folder / "config.json", auto_map=names, model_type="strange")
    for attempt in (
        lambda: open_config(folder),
        lambda: open_weights(AutoModelForSequenceClassification, folder),
    ):
        with pytest.raises((SparingError, ValueError)):
            attempt()
    assert isinstance(sparing.load(folder), BertForSequenceClassification)  # by its architecture
    assert "Do you wish to run" not in capsys.readouterr().out


def test_a_model_of_a_known_kind_is_opened_as_the_library_has_it(folder):
    _change(folder / "config.json", auto_map={"AutoModelForSequenceClassification": "evil.T"})
    assert isinstance(sparing.load(folder), BertForSequenceClassification)


@pytest.mark.parametrize("key", ["attn_implementation", "_attn_implementation"])
def test_an_attention_kernel_is_not_fetched(folder, key):
    _change(folder / "config.json", **{key: "stranger/kernel"})
    with pytest.raises(SparingError, match="kernel"):
        sparing.load(folder)


def test_an_adapter_is_named_and_leads_to_no_other_model(folder):
    adapter = {"base_model_name_or_path": "/elsewhere", "peft_type": "LORA"}
    (folder / "adapter_config.json").write_text(json.dumps(adapter))
    with pytest.raises(SparingError, match="adapter"):
        sparing.load(folder)


def test_a_swapped_folder_names_only_mechanisms_that_may_run(saved, tmp_path, monkeypatch):
    model = sparing.load(saved)
    sparing.swap(model, "linear")
    model.save_pretrained(tmp_path / "swapped")
    lab = tmp_path / "other_lab"
    lab.mkdir()
    text = (sys.modules["sparing.mechanisms.linear"].__file__, "attention.py")
    shutil.copy(text[0], lab / text[1])
    with (lab / text[1]).open("a") as file:
        file.write(f"\nimport os\nos.mkdir({str(tmp_path / 'RAN')!r})\n")
    monkeypatch.syspath_prepend(tmp_path)
    config = json.loads((tmp_path / "swapped" / "config.json").read_text())
    for row in config["sparing"]["swap"]:
        row["mechanism"] = "other_lab.attention"
    (tmp_path / "swapped" / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match="not imported"):
        sparing.load(tmp_path / "swapped")
    assert not (tmp_path / "RAN").exists()
    opened = sparing.load(tmp_path / "swapped", foreign=("other_lab",))
    assert (tmp_path / "RAN").exists()
    assert type(opened.bert.encoder.layer[0].attention.self.sparing).__module__ == (
        "other_lab.attention"
    )


@pytest.mark.parametrize("name", ["this.x", "this", "os.path", "antigravity.fly", "..linear"])
def test_any_other_module_that_a_folder_names_is_not_imported(saved, tmp_path, name):
    model = sparing.load(saved)
    sparing.swap(model, "linear")
    model.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["sparing"]["swap"][0]["mechanism"] = name
    (tmp_path / "config.json").write_text(json.dumps(config))
    sys.modules.pop("this", None)
    with pytest.raises(CheckpointError):
        sparing.load(tmp_path)
    assert "this" not in sys.modules
    assert "antigravity" not in sys.modules


def test_the_command_line_imports_what_is_typed(tmp_path, monkeypatch, capsys):
    (tmp_path / "typed_lab.py").write_text("import os\nos.mkdir('IMPORTED')\n")
    (tmp_path / "broken_lab.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["--import", "typed_lab", "list", "tasks"])
    assert ended.value.code == 0
    assert (tmp_path / "IMPORTED").is_dir()
    for name, why in {"broken_lab": "ZeroDivisionError", "no_lab": "No module named"}.items():
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(["--import", name, "list"])
        line = capsys.readouterr().err
        assert ended.value.code == 2
        assert why in line
        assert line.count("\n") == 1


@pytest.mark.parametrize("stored", [True, False])
def test_only_buffers_that_are_saved_must_be_numbers(stored):
    """Others are made after the file is read; until then their memory holds anything."""
    model = nn.Module()
    model.register_buffer("one", torch.tensor(float("nan")), persistent=stored)
    if stored:
        with pytest.raises(CheckpointError, match="the weights one are not finite"):
            require_finite(model, "folder")
    else:
        require_finite(model, "folder")
