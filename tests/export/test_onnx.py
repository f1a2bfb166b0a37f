"""An exported segment answers the same at other batches and lengths, or is not written."""

from __future__ import annotations

import json
import sys

import pytest
import torch
from torch import nn

from sparing.core.errors import CheckpointError, Unsupported, UsageError
from sparing.export.engine import Chain
from sparing.export.folder import describe_chain, export_chain, open_chain
from sparing.export.int8 import quantisable_layers
from sparing.export.onnx import export_onnx
from tests.export.conftest import THRESHOLD
from tests.export.segments import TOKENS, image_segments, images, text_segments, texts


class Drifting(nn.Module):
    """Multiplies by the number of calls so far, of which the tracer sees one."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, hidden):
        self.calls += 1
        return 2 * hidden, self.calls * hidden[:, 0]


class Wide(nn.Module):
    """Uses a part of a weight that is larger than what the exporter prepares by itself."""

    def __init__(self):
        super().__init__()
        self.wide = nn.Linear(8, 40_000)

    def forward(self, hidden):
        count = self.wide.out_features - 8
        rows = nn.functional.linear(hidden, self.wide.weight[:count], self.wide.bias[:count])
        return rows.mean(1)


class Counting(nn.Module):
    """Answers otherwise for so many images, which the tracer does not see."""

    def __init__(self, images):
        super().__init__()
        self.images, self.seen = images, []

    def forward(self, pixel_values):
        odd = False
        if not torch.compiler.is_exporting():
            self.seen.append(len(pixel_values))
            odd = len(pixel_values) == self.images
        return pixel_values.mean((2, 3)) + float(odd)


class Branching(nn.Module):
    """Looks at the data."""

    def forward(self, hidden):
        return (hidden, hidden[:, 0]) if hidden.sum() > 0 else (hidden, hidden[:, 1])


@pytest.mark.parametrize(("batch", "tokens"), [(1, 1), (1, 2), (5, 23), (2, TOKENS)])
def test_other_batches_and_lengths(text_chain, batch, tokens):
    segments = text_segments()
    inputs = texts(batch, tokens)
    ours = Chain([text_chain / "segment-0.onnx"])(inputs)[0]
    torch.testing.assert_close(ours, segments[0](**inputs)[1], rtol=1e-4, atol=1e-5)


def test_large_weights_are_ready_for_int8(tmp_path):
    torch.manual_seed(0)
    path = export_onnx(Wide().eval(), {"hidden": torch.randn(2, 4, 8)}, tmp_path / "a.onnx")
    assert len(quantisable_layers([path])) == 1


class Table(nn.Module):
    """Multiplies by the rows of a table as they lie, not turned as a linear layer's are."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(8, 4)

    def forward(self, hidden):
        return (hidden @ self.table.weight).mean(1)


def test_products_are_named_by_weights_that_are_not_turned_too(tmp_path):
    path = export_onnx(Table().eval(), {"hidden": torch.randn(2, 4, 8)}, tmp_path / "a.onnx")
    assert quantisable_layers([path]) == ["0.table"]


@pytest.mark.slow
def test_images_and_pairs(tmp_path):
    segments = image_segments()
    export_chain(segments, images(2), tmp_path / "images", threshold=0.55)
    ours, theirs = open_chain(tmp_path / "images")(images()), Chain(segments, 0.55)(images())
    assert ours[1].tolist() == theirs[1].tolist()
    torch.testing.assert_close(ours[0], theirs[0], rtol=1e-4, atol=1e-5)
    segment = text_segments()[0]
    path = export_onnx(segment, texts(2, 8, pairs=True), tmp_path / "pairs.onnx")
    pairs = texts(5, 13, pairs=True)
    torch.testing.assert_close(Chain([path])(pairs)[0], segment(**pairs)[1], rtol=1e-4, atol=1e-5)
    with pytest.raises(UsageError, match="missing: token_type_ids"):
        Chain([path])(texts(5, 13))


def test_what_cannot_be_exported_leaves_nothing(tmp_path):
    given = {"hidden": torch.randn(2, 8, 4)}
    with pytest.raises(Unsupported, match="Branching cannot be exported"):
        export_onnx(Branching().eval(), given, tmp_path / "a.onnx")
    assert list(tmp_path.iterdir()) == []


def test_what_answers_differently_leaves_nothing(tmp_path):
    (tmp_path / "a.onnx").write_text("an older file")
    with pytest.raises(Unsupported, match=r"answers differently at \d x"):
        export_onnx(Drifting().eval(), {"hidden": torch.randn(2, 8, 4)}, tmp_path / "a.onnx")
    assert (tmp_path / "a.onnx").read_text() == "an older file"
    assert len(list(tmp_path.iterdir())) == 1


def test_one_two_and_three_images_are_tried(tmp_path):
    segment = Counting(3).eval()
    with pytest.raises(Unsupported, match="answers differently at 3 x 1 x 16 x 16"):
        export_onnx(segment, images(2), tmp_path / "a.onnx")
    assert segment.seen[-3:] == [2, 1, 3]


def test_what_runs_nowhere_is_refused_with_the_first_line_of_the_reason(tmp_path, monkeypatch):
    class Failing:
        def get_inputs(self):
            return []

        def run(self, *_):
            raise RuntimeError("no such operator\nand much more")

    monkeypatch.setattr("sparing.export.onnx.open_session", lambda _: Failing())
    with pytest.raises(Unsupported, match=r"fails at 2 x 1 x 16 x 16: no such operator$"):
        export_onnx(Counting(0).eval(), images(2), tmp_path / "a.onnx")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"input_idz": torch.ones(2, 3)}, "did you mean 'input_ids'"),
        ({}, "needs example inputs"),
        (texts(2, 1), "two tokens"),
    ],
)
def test_wrong_examples_are_refused(tmp_path, inputs, message):
    with pytest.raises(UsageError, match=message):
        export_onnx(text_segments()[0], inputs, tmp_path / "a.onnx")


def test_weights_that_one_file_cannot_hold_are_refused_at_once(tmp_path):
    with torch.device("meta"):
        large = nn.Embedding(560_000, 1024).eval()
    with pytest.raises(Unsupported, match=r"holds 2\.1 GB, and the weights take 2\.3 GB"):
        export_onnx(large, {"input": torch.ones(2, 8).long()}, tmp_path / "large.onnx")
    assert not list(tmp_path.iterdir())


def test_a_model_in_training_is_refused(tmp_path):
    with pytest.raises(UsageError, match="eval"):
        export_onnx(text_segments()[0].train(), texts(2, 8), tmp_path / "a.onnx")


def test_a_missing_package_is_named(monkeypatch, text_chain):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(UsageError, match=r"pip install '\.\[onnx\]'"):
        Chain([text_chain / "segment-0.onnx"])


def test_a_chain_comes_back_as_it_was_written(text_chain):
    chain = open_chain(text_chain)
    assert (len(chain), chain.threshold, chain.longest) == (2, THRESHOLD, TOKENS)
    assert chain.back_end == "onnxruntime"


def described(**parts):
    """A description, valid but for ``parts``, of a folder without files."""
    plain = {"version": 1, "engine": "onnxruntime", "precision": "float32", "rest": None}
    return json.dumps({**plain, "segments": ["no.onnx"], "threshold": 1, "longest": None, **parts})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "cannot be read"),
        ('{"version": 1}', "is damaged"),
        (described(version=9, segments=[]), "version 9"),
        (described(segments=["no.onnx"]), "no exported segment"),
        (described(segments="no.onnx"), "is damaged"),
        (described(segments=[7]), "is damaged.*no file of the folder"),
        (described(segments=["../no.onnx"]), "is damaged.*no file of the folder"),
        (described(segments=["/etc/no.onnx"]), "is damaged.*no file of the folder"),
        (described(segments=["."]), "is damaged"),
        (described(segments=["no\0.onnx"]), "is damaged.*no file of the folder"),
        (described(segments=["no.py"]), "is damaged.*is no file of 'onnxruntime'"),
        (described(segments=["no.xml"]), "is damaged.*is no file of 'onnxruntime'"),
        (described(engine="os"), "is damaged.*is no file of 'os'"),
        (described(engine=["openvino"]), "is damaged"),
        (described(precision="int4"), "precision is 'int4', not one of float32"),
        (described(precision=None), "precision is None"),
        (described(rest="bfloat16"), "rest is for OpenVINO"),
        (described(engine="openvino", segments=["no.xml"], rest={}), "rest is for precision"),
        (described(threshold="high"), "is damaged"),
        (described(longest=0), "is damaged.*longest is 0"),
    ],
)
def test_damaged_folders_are_refused(tmp_path, content, message):
    with pytest.raises(CheckpointError, match="no exported chain"):
        open_chain(tmp_path)
    (tmp_path / "chain.json").write_text(content)
    with pytest.raises(CheckpointError, match=message):
        open_chain(tmp_path)


def test_a_description_is_of_its_own_folder(tmp_path, text_chain):
    with pytest.raises(UsageError, match="is not in"):
        describe_chain(tmp_path, [text_chain / "segment-0.onnx"], threshold=0.5)
