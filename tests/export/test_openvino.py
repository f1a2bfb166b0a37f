"""OpenVINO answers as ONNX Runtime does; what it cannot do or read is refused in one line."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    MPNetConfig,
    MPNetForSequenceClassification,
    RobertaConfig,
    RobertaForSequenceClassification,
)

from sparing.core.errors import CheckpointError, Unsupported, UsageError
from sparing.export import _extra, openvino
from sparing.export.dense import dense_segment
from sparing.export.drift import measure_drift
from sparing.export.engine import Chain
from sparing.export.folder import describe_chain, export_chain, open_chain
from sparing.export.openvino import convert, has_bfloat16, held_precision
from sparing.export.static_int8 import quantise_static
from tests.export.conftest import THRESHOLD
from tests.export.segments import (
    TOKENS,
    VOCABULARY,
    Answers,
    image_segments,
    images,
    one,
    texts,
)

ROOT = Path(__file__).parents[2]
SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "num_labels": 3,
    "initializer_range": 0.2,
}
needs_bfloat16 = pytest.mark.skipif(
    not has_bfloat16(), reason="the processor does not multiply in bfloat16"
)


def bert(kind=BertForSequenceClassification, config=BertConfig, positions=TOKENS):
    torch.manual_seed(0)
    sizes = {"vocab_size": VOCABULARY, "max_position_embeddings": positions}
    return kind(config(**SIZES, **sizes)).eval()


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """A tiny BERT in both engines, with token types, without its longest length."""
    folder = tmp_path_factory.mktemp("bert")
    paths = export_chain([dense_segment(bert())], texts(2, 8, pairs=True), folder / "onnx")
    converted = convert(paths, folder / "openvino", texts(2, 8, pairs=True))
    return paths, converted


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A small model that has learned whether the sum of a text's tokens is large, and its files."""
    torch.manual_seed(0)
    model = Answers(2)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(150):
        inputs = texts(32, 12, seed=step)
        loss = F.cross_entropy(model(**inputs), _goal(inputs))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    folder = tmp_path_factory.mktemp("trained")
    paths = export_chain([model.eval()], texts(2, 8), folder / "onnx")
    return model, convert(paths, folder / "openvino", texts(2, 8))


def _goal(inputs):
    lengths = inputs["attention_mask"].sum(1)
    return (inputs["input_ids"].sum(1) > 25 * lengths).long()


@pytest.mark.parametrize(("batch", "tokens"), [(1, 2), (1, TOKENS), (7, 5), (16, TOKENS)])
def test_float32_agrees_with_pytorch_at_any_size(both, batch, tokens):
    inputs = texts(batch, tokens, pairs=True)
    with torch.no_grad():
        expected = bert()(**inputs).logits
    for paths in both:
        logits, places = Chain(paths)(inputs)
        torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-5)
        assert not places.any()


@pytest.mark.parametrize("threshold", [0.5, 0.7, THRESHOLD])
def test_exits_are_those_of_onnx_runtime(text_chain, openvino_chain, threshold):
    chains = [open_chain(text_chain), open_chain(openvino_chain)]
    inputs = texts(200, seed=4)
    for chain in chains:
        chain.threshold = threshold
    (ours, left), (theirs, expected) = (chain(inputs) for chain in chains)
    assert left.tolist() == expected.tolist()
    assert len(set(left.tolist())) == 2
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_images_and_learned_names_are_kept(tmp_path):
    paths = export_chain(image_segments(), images(2), tmp_path / "onnx")
    converted = convert(paths, tmp_path / "openvino", images(2))
    assert [path.name for path in converted] == ["segment-0.xml", "segment-1.xml"]
    ours, theirs = (Chain(files, 0.55)(images()) for files in (converted, paths))
    assert ours[1].tolist() == theirs[1].tolist()
    torch.testing.assert_close(ours[0], theirs[0], rtol=1e-4, atol=1e-5)
    with pytest.raises(UsageError, match="pixel_values is of shape"):
        Chain(converted)({"pixel_values": images(2)["pixel_values"][..., :-1]})


def test_threads_at_once_get_their_own_answers(both):
    chain = Chain(both[1])
    rows = [one(texts(40, pairs=True), number) for number in range(40)]
    expected = [chain(row)[0] for row in rows]
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda row: chain(row)[0], rows * 3))
    for number, logits in enumerate(answers):
        torch.testing.assert_close(logits, expected[number % 40])


def test_inputs_are_not_written_to_and_answers_stay(both):
    chain, inputs = Chain(both[1]), texts(3, 8, pairs=True)
    arrays = {name: value.numpy() for name, value in inputs.items()}
    before = {name: value.copy() for name, value in arrays.items()}
    first = chain(arrays)[0]
    earlier = first.copy()
    chain(texts(5, 12, seed=9, pairs=True))
    np.testing.assert_array_equal(first, earlier)
    for name, value in arrays.items():
        np.testing.assert_array_equal(value, before[name])


@needs_bfloat16
def test_bfloat16_drifts_a_little(trained, openvino_chain):
    model, files = trained
    rows = [one(texts(100, 12, seed=999), number) for number in range(100)]
    chain = Chain(files, precision="bfloat16")
    drift = measure_drift(Chain([model]), chain, rows, "class")
    assert 1e-4 < drift.mean < 0.05
    assert drift.changed <= 3
    assert chain(rows[0])[0].dtype == torch.float32
    cut = Chain(sorted(openvino_chain.glob("*.xml")), THRESHOLD, precision="bfloat16")
    assert set(cut(texts())[1].tolist()) == {0, 1}


def test_int8_agrees_on_a_trained_model(trained, tmp_path):
    model, files = trained
    given = [one(texts(60, 12, seed=77), number) for number in range(60)]
    paths = quantise_static(files, tmp_path / "int8", given)
    assert paths[0].with_suffix(".bin").stat().st_size < 0.5 * _weights(files[0])
    rows = [one(texts(100, 12, seed=999), number) for number in range(100)]
    for rest in ("float32", *(["bfloat16"] if has_bfloat16() else [])):
        chain = Chain(paths, precision="int8", rest=rest)
        drift = measure_drift(Chain([model]), chain, rows, "class")
        assert 1e-4 < drift.mean < 0.2, rest
        assert drift.changed <= 8, rest

    assert [held_precision(path) for path in (*files, *paths)] == ["float32", "int8"]
    with pytest.raises(UsageError, match="the segments hold int8; got 'float32'"):
        Chain(paths)
    with pytest.raises(UsageError, match="the segments hold float32; got 'int8'"):
        Chain(files, precision="int8")


def _weights(path):
    return path.with_suffix(".bin").stat().st_size


def test_int8_of_several_segments_is_calibrated_through_them(openvino_chain, tmp_path, capfd):
    files = sorted(openvino_chain.glob("*.xml"))
    given = [one(texts(30, seed=5), number) for number in range(30)]
    paths = quantise_static(files, tmp_path / "int8", given)
    assert [path.name for path in paths] == [path.name for path in files]
    assert sorted(path.name for path in (tmp_path / "int8").iterdir()) == [
        *("segment-0.bin", "segment-0.xml", "segment-1.bin", "segment-1.xml")
    ]
    describe_chain(tmp_path / "int8", paths, threshold=0.5, precision="int8", rest="float32")
    opened = open_chain(tmp_path / "int8")
    assert (opened.precision, opened.rest, len(opened)) == ("int8", "float32", 2)
    assert opened(texts())[0].isfinite().all()
    printed = capfd.readouterr()
    assert not printed.out
    with pytest.raises(UsageError, match="give at least one text"):
        quantise_static(files, tmp_path / "none", [])
    with pytest.raises(UsageError, match="another folder"):
        quantise_static(files, openvino_chain, given)


@pytest.fixture
def emulating(monkeypatch):
    monkeypatch.setattr(openvino, "multiplies_bfloat16", lambda: False)


def test_emulated_bfloat16_is_refused(emulating, openvino_chain, tmp_path):
    files = sorted(openvino_chain.glob("*.xml"))
    with pytest.raises(Unsupported, match="emulated slowly: use precision 'float32' or 'int8'"):
        Chain(files, precision="bfloat16")
    with pytest.raises(Unsupported, match="emulated slowly: use rest 'float32'"):
        Chain(files, precision="int8", rest="bfloat16")
    assert openvino.float_precision("int8", None) == "float32"
    shutil.copytree(openvino_chain, tmp_path / "new")
    description = json.loads((tmp_path / "new" / "chain.json").read_text())
    text = json.dumps({**description, "precision": "bfloat16"})
    (tmp_path / "new" / "chain.json").write_text(text)
    with pytest.raises(Unsupported, match=r"new/chain\.json: this processor does not"):
        open_chain(tmp_path / "new")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"precision": "float16"}, "precision is 'float16', not one of"),
        ({"precision": "float32", "rest": "bfloat16"}, "rest is for precision 'int8'"),
        ({"precision": "int8", "rest": "float16"}, "rest is 'float16', not one of"),
        ({"thread_count": 0}, "thread_count must be at least 1"),
    ],
)
def test_impossible_precisions_are_refused(both, options, message):
    with pytest.raises(UsageError, match=message):
        Chain(both[1], **options)


def test_other_engines_do_not_choose_a_precision(both):
    with pytest.raises(Unsupported, match="export to OpenVINO instead"):
        Chain(both[0], precision="bfloat16")
    with pytest.raises(UsageError, match="rest is for OpenVINO"):
        Chain(both[0], rest="float32")
    with pytest.raises(UsageError, match="of one engine"):
        Chain([*both[0], *both[1]])


def test_tokens_and_lengths_beyond_the_tables_are_refused(both):
    """OpenVINO itself answers with zeros there."""
    chain, inputs = Chain(both[1]), texts(2, 6, pairs=True)
    beyond = inputs["input_ids"].clone()
    for number in (VOCABULARY, 2**31, 2**62):
        beyond[1, 0] = number
        with pytest.raises(UsageError, match=f"token {number} or a token type"):
            chain({**inputs, "input_ids": beyond})
    with pytest.raises(UsageError, match="or a token type is outside"):
        chain({**inputs, "token_type_ids": inputs["token_type_ids"] * 0 + 2})
    long = {name: torch.ones(1, TOKENS + 1, dtype=torch.long) for name in inputs}
    with pytest.raises(UsageError, match=f"{TOKENS + 1} tokens, and positions for {TOKENS}"):
        chain(long)


def test_positions_after_the_pad_token_are_counted(tmp_path):
    """RoBERTa's positions start at 2: so many fewer tokens have one."""
    model = bert(RobertaForSequenceClassification, RobertaConfig, positions=12)
    inputs = texts(2, 8)
    inputs["input_ids"].clamp_(min=2)
    paths = export_chain([dense_segment(model)], inputs, tmp_path / "onnx")
    chain = Chain(convert(paths, tmp_path / "openvino", inputs))
    full = {name: torch.full((1, 10), 2 if name == "input_ids" else 1) for name in inputs}
    with torch.no_grad():
        expected = model(**full).logits
    torch.testing.assert_close(chain(full)[0], expected, rtol=1e-4, atol=1e-5)
    long = {name: torch.full((1, 11), 2 if name == "input_ids" else 1) for name in inputs}
    with pytest.raises(UsageError, match="11 tokens, and positions for 10"):
        chain(long)


def test_distances_that_are_grouped_have_no_longest_length(tmp_path):
    """MPNet's table of distances is small, and its positions allow more."""
    model = bert(MPNetForSequenceClassification, MPNetConfig, positions=60)
    inputs = texts(2, 8)
    inputs["input_ids"].clamp_(min=2)
    paths = export_chain([dense_segment(model)], inputs, tmp_path / "onnx")
    chain = Chain(convert(paths, tmp_path / "openvino", inputs))
    full = {name: torch.full((1, 58), 2 if name == "input_ids" else 1) for name in inputs}
    with torch.no_grad():
        expected = model(**full).logits
    torch.testing.assert_close(chain(full)[0], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("segment-1.xml", None, "no exported segment"),
        ("segment-1.bin", None, "no exported segment"),
        ("segment-0.xml", b"", "no OpenVINO model"),
        ("segment-0.xml", b"<html/>", "no OpenVINO model"),
        ("segment-0.xml", b"\x00" * 50, "no OpenVINO model"),
        ("segment-0.xml", b"<?xml version='1.0'?><net name='a' version='11'>", "cannot be run"),
        ("segment-0.xml", "half", "cannot be run"),
        ("segment-0.bin", b"", "cannot be run"),
        ("segment-0.bin", "half", "cannot be run"),
    ],
)
def test_damaged_files_are_refused_in_one_line(openvino_chain, tmp_path, name, content, message):
    folder = tmp_path / "copy"
    shutil.copytree(openvino_chain, folder)
    whole = (folder / name).read_bytes()
    if content is None:
        (folder / name).unlink()
    else:
        half = whole[: len(whole) // 2]
        (folder / name).write_bytes(half if content == "half" else content)
    with pytest.raises(CheckpointError, match=message) as error:
        open_chain(folder)
    assert "\n" not in str(error.value)
    assert "src/" not in str(error.value)


def test_a_model_without_logits_is_no_segment(tmp_path):
    ov = _extra.require("openvino")
    given = ov.opset13.parameter([-1, -1], np.int64, name="input_ids")
    given.output(0).set_names({"input_ids"})
    made = ov.opset13.convert(given, "f32")
    made.output(0).set_names({"other"})
    openvino.save(ov.Model([made], [given]), tmp_path / "segment-0.xml")
    with pytest.raises(UsageError, match="gives other; an answer is one of logits"):
        Chain([tmp_path / "segment-0.xml"])


def test_answers_that_differ_are_not_kept(both, tmp_path, monkeypatch):
    """The check after a conversion can fail."""
    real = openvino.open_compiled

    def doubled(*args):
        compiled = real(*args)

        def infer(*given, **options):
            made = request.infer(*given, **options)
            return {name: 2 * made[name] for name in ("logits",)}

        request = compiled.model.create_infer_request()
        return SimpleNamespace(
            model=SimpleNamespace(create_infer_request=lambda: SimpleNamespace(infer=infer))
        )

    monkeypatch.setattr(openvino, "open_compiled", doubled)
    with pytest.raises(Unsupported, match="answers differently"):
        convert(both[0], tmp_path / "new", texts(2, 8, pairs=True))
    assert not list((tmp_path / "new").iterdir())


def test_a_file_that_is_no_segment_is_not_converted(tmp_path):
    (tmp_path / "segment-0.onnx").write_bytes(b"not a model")
    with pytest.raises(UsageError, match="cannot be run"):
        convert([tmp_path / "segment-0.onnx"], tmp_path / "new", texts(2, 8))
    assert not list((tmp_path / "new").iterdir())


LIMITED = """
import resource, signal, sys
from pathlib import Path
from sparing.export.openvino import read, save
model = read(Path(sys.argv[1]))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
try:
    save(model, Path(sys.argv[2]))
except OSError as error:
    print("refused:", error.strerror)
"""


def test_a_write_that_fails_is_reported(openvino_chain, tmp_path):
    """A limit on the size of files stands for a full disk."""
    source, target = openvino_chain / "segment-0.xml", tmp_path / "segment-0.xml"
    assert _child(LIMITED, source, target).startswith("refused: it cannot be written")


KILLED = """
import os, signal, sys
from pathlib import Path
from sparing.export import openvino
from sparing.export._extra import require
from tests.export.segments import texts
folder, target = map(Path, sys.argv[1:])
ov, calls = require("openvino"), []
save_model = ov.save_model
def killed(*args, **options):
    save_model(*args, **options)
    calls.append(1)
    if len(calls) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
ov.save_model = killed
openvino.convert(sorted(folder.glob("*.onnx")), target, texts(2, 8))
"""


def test_a_kill_in_the_middle_leaves_no_half_chain(text_chain, tmp_path):
    _child(KILLED, text_chain, tmp_path, code=-signal.SIGKILL)
    assert not list(tmp_path.glob("segment*"))
    convert(sorted(text_chain.glob("*.onnx")), tmp_path, texts(2, 8))
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["segment-0.bin", "segment-0.xml", "segment-1.bin", "segment-1.xml"]


SENDING = """
import socket, sys
tried = []
socket.socket.connect = lambda *args: tried.append(args)
socket.create_connection = lambda *args, **options: tried.append(args)
from sparing.export._extra import require
require("openvino").Core()
require("nncf")
import time
time.sleep(0.5)
assert not tried, tried
assert not any("ga4" in name for name in sys.modules)
print("nothing")
"""


def test_nothing_is_sent_and_no_identity_is_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert _child(SENDING) == "nothing"
    assert not (tmp_path / "intel").exists()


def test_a_sender_that_is_imported_already_is_silenced(monkeypatch):
    sent = []

    class Telemetry:
        def send_event(self, *event):
            sent.append(event)

    monkeypatch.setitem(sys.modules, _extra.TELEMETRY, SimpleNamespace(Telemetry=Telemetry))
    _extra.require("openvino")
    Telemetry().send_event("ov", "import")
    assert not sent


def test_missing_packages_are_named_with_their_extra(both, monkeypatch, tmp_path):
    openvino._core.cache_clear()
    monkeypatch.setitem(sys.modules, "openvino", None)
    try:
        with pytest.raises(UsageError, match=r"openvino is not installed.*'\.\[openvino\]'"):
            Chain(both[1])
        with pytest.raises(UsageError, match=r"openvino is not installed"):
            convert(both[0], tmp_path, texts(2, 8))
    finally:
        openvino._core.cache_clear()


def _child(source, *arguments, code=0):
    """What a process prints that runs ``source`` in the root of the repository."""
    command = [sys.executable, "-c", source, *map(str, arguments)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=ROOT)
    assert ended.returncode == code, ended.stderr[-2000:]
    return ended.stdout.strip()
