"""A chain as one ONNX file: each input's answer and exit are those of the segments."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import onnx
import pytest
import torch

from sparing.core.errors import CheckpointError, Unsupported, UsageError
from sparing.export.engine import Chain
from sparing.export.folder import copy_chain, describe_chain, export_chain, open_chain
from sparing.export.int8 import quantise
from sparing.export.joined import EXIT, THRESHOLD, join
from sparing.export.onnx import export_onnx, open_session
from sparing.transfer.freezing import segments
from tests.export.segments import Answers, image_segments, images, text_segments, texts
from tests.export.test_adaptive import adaptive

THREE = (1, 1, 1)


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    """Three segments in float32 and in INT8, with the dense model behind them."""
    folder = tmp_path_factory.mktemp("three")
    paths = export_chain(text_segments(THREE), texts(2, 8), folder / "float32")
    torch.manual_seed(3)
    whole = export_onnx(Answers(2).eval(), texts(2, 8), folder / "whole.onnx")
    small = quantise(paths, folder / "int8")
    middle = export_onnx(Answers(2).eval(), texts(2, 8), folder / "middle.onnx")
    return {
        "float32": paths,
        "int8": small,
        "cascade": [*small, whole],
        "two": [*paths, middle, whole],
        "whole": [middle, whole, middle],
    }


def between(chain, inputs, share):
    """A threshold that no confidence is near, above so many of the first exit's."""
    confidence = chain.every_exit(inputs).softmax(-1).amax(-1)[:, 0].sort().values
    rank = max(1, min(len(confidence) - 1, round((1 - share) * len(confidence))))
    return float(confidence[rank - 1 : rank + 1].mean())


def require_same(chain, joined, inputs, threshold):
    """The joined file answers as its segments do; returns the exits."""
    chain.threshold = joined.threshold = threshold
    expected, exits = chain(inputs)
    answers, places = joined(inputs)
    assert torch.equal(places, exits)
    torch.testing.assert_close(answers, expected, rtol=1e-5, atol=1e-5)
    return set(exits.tolist())


@pytest.mark.parametrize("form", ["float32", "int8", "cascade"])
def test_it_answers_as_its_segments_do(three, form, tmp_path):
    chain = Chain(three[form])
    joined = Chain([join(three[form], tmp_path / "model.onnx")])
    inputs = texts()
    seen = set()
    for share in (0.2, 0.5, 0.8):
        threshold = between(chain, inputs, share)
        for rows in (slice(0, 40), slice(3, 10), slice(5, 6)):
            some = {name: value[rows] for name, value in inputs.items()}
            seen |= require_same(chain, joined, some, threshold)
    for threshold in (0.0, 1.0):
        seen |= require_same(chain, joined, inputs, threshold)
    assert seen == set(range(len(three[form])))


def plain_exits(chain, inputs, threshold, second, first_whole):
    """Where each input leaves, one after another; a whole model has a threshold of its own."""
    places = []
    for every in chain.every_exit(inputs).softmax(-1).amax(-1).tolist():
        limits = [threshold] * first_whole + [second] * (len(every) - first_whole - 1)
        sure = [number for number, limit in enumerate(limits) if every[number] > limit]
        places.append(sure[0] if sure else len(every) - 1)
    return places


@pytest.mark.parametrize(("form", "first_whole"), [("two", 3), ("whole", 1)])
def test_a_whole_model_in_between_has_a_threshold_of_its_own(three, form, first_whole, tmp_path):
    chain = Chain(three[form])
    joined = Chain([join(three[form], tmp_path / "model.onnx")])
    inputs = texts()
    sure = chain.every_exit(inputs).softmax(-1).amax(-1)
    seen = set()
    for threshold in (0.0, *sure[:, :first_whole].amax(1).quantile(torch.tensor([0.3, 0.6]))):
        for second in (0.0, *sure[:, first_whole].quantile(torch.tensor([0.3, 0.6])), 1.0):
            # no confidence is within rounding of a threshold
            limits = [round(float(limit), 3) + 0.00051 for limit in (threshold, second)]
            limits = [min(1.0, limit) for limit in limits]
            for opened in (chain, joined):
                opened.second = limits[1]
            expected = plain_exits(chain, inputs, *limits, first_whole)
            exits = require_same(chain, joined, inputs, limits[0])
            assert chain(inputs)[1].tolist() == expected
            alone = [joined({k: v[row : row + 1] for k, v in inputs.items()})[1] for row in (0, 7)]
            assert [int(one) for one in alone] == [expected[0], expected[7]]
            seen |= exits
    assert {0, first_whole, len(three[form]) - 1} <= seen


def test_a_second_threshold_is_written_and_read(three, tmp_path):
    paths = copy_chain(three["two"], tmp_path, threshold=0.7, second=0.6)
    opened = open_chain(tmp_path)
    assert (opened.threshold, opened.second) == (0.7, 0.6)
    assert json.loads((tmp_path / "chain.json").read_text())["version"] == 2
    chain = Chain(three["two"], 0.7, second=0.6)
    given = {name: texts()[name].numpy() for name in chain.takes}
    expected, places = chain(given)
    logits, exits = open_session(paths[0]).run(["logits", EXIT], given)
    np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(exits, places)
    sound = json.loads((tmp_path / "chain.json").read_text())
    for second in (1.5, -0.1, math.nan, None, "half", [0.5]):
        (tmp_path / "chain.json").write_text(json.dumps(sound | {"second_threshold": second}))
        with pytest.raises(CheckpointError) as refused:
            open_chain(tmp_path)
        assert "\n" not in str(refused.value)
    copy_chain(three["cascade"], tmp_path / "straight", threshold=0.7)
    straight = json.loads((tmp_path / "straight" / "chain.json").read_text())
    changed = straight | {"version": 2, "second_threshold": 0.5}
    (tmp_path / "straight" / "chain.json").write_text(json.dumps(changed))
    with pytest.raises(CheckpointError, match="second is the threshold of a whole model"):
        open_chain(tmp_path / "straight")


def test_a_second_threshold_needs_a_whole_model_in_between(three, tmp_path):
    for form in ("float32", "cascade"):
        joined = join(three[form], tmp_path / f"{form}.onnx")
        for parts in (three[form], [joined]):
            with pytest.raises(UsageError, match="second is the threshold of a whole model"):
                Chain(parts, 0.5, second=0.5)
        copy_chain(three[form], tmp_path / form, threshold=0.5)
        assert json.loads((tmp_path / form / "chain.json").read_text())["version"] == 1
    with pytest.raises(UsageError, match="second must be in"):
        join(three["two"], tmp_path / "model.onnx", second=-0.1)


def test_images_have_no_mask(tmp_path):
    paths = export_chain(image_segments(), images(2), tmp_path / "parts")
    chain, joined = Chain(paths), Chain([join(paths, tmp_path / "model.onnx")])
    assert require_same(chain, joined, images(), between(chain, images(), 0.5)) == {0, 1}


@pytest.mark.parametrize("confidence", ["softmax", "learned"])
def test_dropped_tokens_and_a_learned_confidence(confidence, tmp_path):
    model = adaptive()
    model.encoder.add_confidences((1,))
    with torch.no_grad():
        model.encoder.confidence_head(1).linear.weight.normal_(std=0.3)
    changes = {"tokens_kept": 0.6, "tokens_after": 1} if confidence == "softmax" else {}
    model.plan = dataclasses.replace(
        model.plan, exits=(1,), threshold=0.5, confidence=confidence, **changes
    )
    paths = export_chain(segments(model), texts(2, 8), tmp_path / "parts")
    chain, joined = Chain(paths), Chain([join(paths, tmp_path / "model.onnx")])
    threshold = between(chain, texts(), 0.5) if confidence == "softmax" else 0.5
    assert require_same(chain, joined, texts(), threshold) == {0, 1}


def test_a_row_whose_confidence_is_not_a_number_goes_on(three, tmp_path):
    first, *later = (onnx.load(path) for path in three["float32"])
    (logits,) = [value for value in first.graph.output if value.name == "logits"]
    for node in first.graph.node:
        node.output[:] = ["before" if name == "logits" else name for name in node.output]
    first.graph.node.append(onnx.helper.make_node("Log", ["negative"], [logits.name]))
    first.graph.node.insert(-1, onnx.helper.make_node("Abs", ["before"], ["positive"]))
    first.graph.node.insert(-1, onnx.helper.make_node("Neg", ["positive"], ["negative"]))
    paths = [tmp_path / f"{number}.onnx" for number in range(3)]
    for path, model in zip(paths, (first, *later), strict=True):
        onnx.save_model(model, path)
    joined = Chain([join(paths, tmp_path / "model.onnx")], 0.0)
    assert 0 not in joined(texts())[1].tolist()


def test_rows_of_pads_alone_do_not_end_it(three, tmp_path):
    """A chain refuses them; other programs may send them."""
    session = open_session(join(three["float32"], tmp_path / "model.onnx"))
    given = {name: value[:3].numpy() for name, value in texts(3).items()}
    expected = session.run(["logits"], given)[0]
    given["attention_mask"][1] = 0
    logits = session.run(["logits"], given)[0]
    np.testing.assert_allclose(logits[[0, 2]], expected[[0, 2]], rtol=1e-5, atol=1e-5)
    given["attention_mask"][:] = 0
    assert session.run(["logits"], given)[0].shape == expected.shape


def test_any_engine_of_onnx_opens_it_with_the_threshold_of_the_file(three, tmp_path):
    chain = Chain(three["float32"])
    inputs = texts()
    threshold = between(chain, inputs, 0.5)
    path = join(three["float32"], tmp_path / "model.onnx", threshold=threshold)
    onnx.checker.check_model(path, full_check=True)
    session = open_session(path)
    assert [given.name for given in session.get_inputs()] == list(chain.takes)
    given = {name: inputs[name].numpy() for name in chain.takes}
    logits, exits = session.run(["logits", EXIT], given)
    chain.threshold = threshold
    expected, places = chain(inputs)
    np.testing.assert_allclose(logits, expected.numpy(), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(exits, places.numpy())
    all_out = session.run([EXIT], given | {THRESHOLD: np.array(0, np.float32)})[0]
    assert not all_out.any()


def test_a_written_chain_is_one_file_with_the_names_that_others_look_for(three, tmp_path):
    inputs = texts()
    threshold = between(Chain(three["cascade"]), inputs, 0.5)
    paths = copy_chain(three["cascade"], tmp_path, threshold=threshold, precision="int8")
    assert [path.relative_to(tmp_path).as_posix() for path in paths] == ["onnx/model.onnx"]
    opened = open_chain(tmp_path)
    assert (opened.joined, opened.threshold, opened.precision) == (True, threshold, "int8")
    require_same(Chain(three["cascade"]), opened, inputs, threshold)
    assert paths[0].stat().st_size < 1.1 * sum(path.stat().st_size for path in three["cascade"])


def test_what_cannot_be_joined_is_refused(three, tmp_path):
    paths, target = three["float32"], tmp_path / "model.onnx"
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"no model")
    other = onnx.load(paths[1])
    other.graph.output.pop()
    onnx.save_model(other, tmp_path / "other.onnx")
    for parts, threshold, words in (
        (paths[:1], 0.5, "several"),
        (paths, 1.5, "between|in \\[0, 1\\]"),
        ([paths[0], broken], 0.5, "no ONNX file"),
        ([paths[0], tmp_path / "other.onnx"], 0.5, "no segment that gives logits"),
        ([paths[1], paths[0]], 0.5, "takes 'input_ids'"),
        ([paths[0], tmp_path / "missing.onnx"], 0.5, "there is no exported segment"),
    ):
        with pytest.raises(UsageError, match=words):
            join(parts, target, threshold=threshold)
    assert not target.exists()


def test_a_joined_file_is_a_whole_chain(three, tmp_path):
    path = join(three["float32"], tmp_path / "model.onnx")
    with pytest.raises(UsageError, match="whole chain"):
        Chain([path, three["float32"][1]])
    with pytest.raises(Unsupported, match="open its segments"):
        Chain([path]).every_exit(texts(2))
    describe_chain(tmp_path, [path], threshold=0.5)
    assert open_chain(tmp_path).joined
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(CheckpointError, match="cannot be run"):
        open_chain(tmp_path)
