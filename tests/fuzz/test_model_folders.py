"""Model folders with any content are opened or refused in a line."""

from __future__ import annotations

import json
import shutil
import struct
import tempfile
from functools import cache
from pathlib import Path

from hypothesis import strategies as st

import sparing
from tests.fuzz.harness import (
    CHANGES,
    CUTS,
    TEXTS,
    command,
    fuzzed,
    spoilt_bytes,
    spoilt_tree,
    survives,
    text_of,
)

KINDS = ("swapped", "adaptive", "dense")
WEIGHTS = "model.safetensors"


@cache
def _files(kind):
    """The files of a tiny saved model."""
    from tests.transfer.classifiers import dense

    model = dense("bert")
    model = model.float()
    if kind == "swapped":
        sparing.swap(model, "linear")
    if kind == "adaptive":
        model = sparing.adapt(model)
    with tempfile.TemporaryDirectory() as temporary:
        model.save_pretrained(temporary)
        return {file.name: file.read_bytes() for file in Path(temporary).iterdir()}


def _write(model_dir, kind):
    shutil.rmtree(model_dir, ignore_errors=True)
    model_dir.mkdir()
    for name, content in _files(kind).items():
        (model_dir / name).write_bytes(content)


def _spoilt_section(config, changes):
    """Changes of what sparing itself writes into the configuration."""
    section = config.get("sparing") or {}
    return {**config, "sparing": spoilt_tree(section, changes)}


@fuzzed(
    5,
    0.07,
    kind=st.sampled_from(KINDS),
    changes=CHANGES,
    sparing_section=st.booleans(),
    cuts=st.just([]) | st.just([]) | st.lists(CUTS, max_size=2),
)
def test_configurations(folder, kind, changes, sparing_section, cuts):
    """config.json with other values, or damaged."""
    model_dir = folder / "model"
    _write(model_dir, kind)
    config = json.loads((model_dir / "config.json").read_text())
    spoilt = _spoilt_section(config, changes) if sparing_section else spoilt_tree(config, changes)
    text = spoilt_bytes(text_of(spoilt).encode(), cuts)
    (model_dir / "config.json").write_bytes(text)
    survives(
        lambda: sparing.load(model_dir),
        kind=kind,
        changes=changes,
        sparing_section=sparing_section,
        cuts=cuts,
    )


@fuzzed(
    5,
    0.05,
    kind=st.sampled_from(KINDS),
    changes=CHANGES,
    cuts=st.just([]) | st.lists(CUTS, max_size=2),
    length=st.sampled_from([None, None, None, 0, 1, 2**40, 2**63]),
)
def test_weights(folder, kind, changes, cuts, length):
    """The header of the weights with other values, or damaged bytes."""
    model_dir = folder / "model"
    _write(model_dir, kind)
    content = (model_dir / WEIGHTS).read_bytes()
    size = struct.unpack("<Q", content[:8])[0]
    if cuts:
        content = spoilt_bytes(content, cuts)
    else:
        header = text_of(spoilt_tree(json.loads(content[8 : 8 + size]), changes)).encode()
        content = struct.pack("<Q", len(header)) + header + content[8 + size :]
    if length is not None:
        content = struct.pack("<Q", length) + content[8:]
    (model_dir / WEIGHTS).write_bytes(content)
    inputs = {"kind": kind, "changes": changes, "cuts": cuts, "length": length}
    survives(lambda: sparing.load(model_dir), **inputs)


@fuzzed(
    2,
    0.03,
    kind=st.sampled_from(KINDS),
    changes=CHANGES,
    file=st.sampled_from(["config.json", "tokenizer_config.json", "vocab.txt", "tokenizer.json"]),
    verb=st.sampled_from(["swap", "advise", "measure", "evaluate"]),
    words=TEXTS,
)
def test_commands_on_models(folder, kind, changes, file, verb, words):
    """Commands that open a model whose folder holds odd files; none of them gets to work."""
    model_dir = folder / "model"
    _write(model_dir, kind)
    if file == "config.json":
        config = json.loads((model_dir / file).read_text())
        (model_dir / file).write_text(text_of(spoilt_tree(config, changes)))
    elif file.endswith(".txt"):
        (model_dir / file).write_text(f"[PAD]\n[UNK]\n{words}\n", encoding="utf-8")
    else:
        (model_dir / file).write_text(text_of(spoilt_tree({"tokenizer_class": "E"}, changes)))
    arguments = {
        "swap": ["swap", "model", "no-such-mechanism", "--output-dir", "out"],
        "advise": ["advise", "model", "--texts", "no-such-file"],
        "measure": ["measure", "model", "--tokens", "0"],
        "evaluate": ["evaluate", "model", "--task", "no-such-task"],
    }
    command(arguments[verb], folder, kind=kind, changes=changes, file=file, words=words)
