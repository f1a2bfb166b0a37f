"""INT8 stays near float32, leaves named layers alone, and says how near."""

from __future__ import annotations

import shutil
import warnings
from dataclasses import replace

import onnx
import pytest
import torch

from sparing.core.errors import UsageError
from sparing.core.processor import int8_sums_overflow
from sparing.export.engine import Chain
from sparing.export.int8 import (
    Int8Settings,
    logit_shift,
    quantisable_layers,
    quantise,
    quantise_module,
    sensitivities,
    try_settings,
)
from sparing.export.onnx import export_onnx
from tests.export.segments import one, text_segments, texts

SCALES = ["tensor", "channel", "blocks"]


@pytest.fixture
def segments(text_chain):
    return [text_chain / "segment-0.onnx", text_chain / "segment-1.onnx"]


def test_layers_have_the_names_of_the_modules(segments):
    layers = ["layers.0.projection", "layers.0.output", "layers.0.rise", "layers.0.fall", "head"]
    assert quantisable_layers(segments) == [
        f"{number}.{layer}" for number in (0, 1) for layer in layers
    ]


@pytest.mark.parametrize("scales", SCALES)
def test_logits_stay_near_and_files_shrink(segments, tmp_path, scales):
    inputs = texts()
    plain = Chain(segments)(inputs)[0]
    paths = quantise(segments, tmp_path / "int8", Int8Settings(scales))
    shift = logit_shift(plain, Chain(paths)(inputs)[0])
    assert 1e-4 < shift.relative < 0.05
    assert shift.changed <= 1
    assert "of 40 answers change" in str(shift)
    assert [path.name for path in paths] == ["segment-0.onnx", "segment-1.onnx"]
    assert len(list((tmp_path / "int8").iterdir())) == 2
    assert paths[1].stat().st_size < 0.8 * segments[1].stat().st_size


def test_blocks_have_integer_activations(segments, tmp_path):
    path = quantise(segments[:1], tmp_path, Int8Settings("blocks"))[0]
    nodes = [node for node in onnx.load(path).graph.node if node.op_type == "MatMulNBits"]
    assert len(nodes) == 4
    for node in nodes:
        given = {attribute.name: attribute.i for attribute in node.attribute}
        assert (given["bits"], given["block_size"], given["accuracy_level"]) == (8, 32, 4)


def test_blocks_do_not_depend_on_the_batch(segments, tmp_path):
    inputs = texts(8)
    for scales, together in (("blocks", True), ("channel", False)):
        chain = Chain(quantise(segments, tmp_path / scales, Int8Settings(scales)))
        alone = torch.cat([chain(one(inputs, row))[0] for row in range(8)])
        assert torch.allclose(chain(inputs)[0], alone, rtol=1e-4, atol=1e-5) == together


@pytest.mark.parametrize("scales", SCALES)
def test_layers_left_in_float32_are_left(segments, tmp_path, scales):
    inputs = texts()
    plain = Chain(segments)(inputs)[0]
    everything = Int8Settings(scales, float32_layers=("*",))
    paths = quantise(segments, tmp_path / "all", everything)
    torch.testing.assert_close(Chain(paths)(inputs)[0], plain, rtol=1e-5, atol=1e-6)
    some = Int8Settings(scales, float32_layers=("0.*", "1.layers.0.fall"))
    paths = quantise(segments, tmp_path / "some", some)
    assert quantisable_layers(paths[1:])[0] == "0.layers.0.fall"
    assert len(quantisable_layers(paths[1:])) == (2 if scales == "blocks" else 1)
    torch.testing.assert_close(
        Chain(paths[:1])(inputs)[0], Chain(segments[:1])(inputs)[0], rtol=1e-5, atol=1e-6
    )


def test_seven_bits_lose_more_than_eight_where_sums_do_not_overflow(segments, tmp_path):
    inputs = texts()
    plain = Chain(segments)(inputs)[0]
    shifts = {}
    for narrow in (False, True):
        settings = Int8Settings("channel", reduce_range=narrow)
        paths = quantise(segments, tmp_path / str(narrow), settings)
        shifts[narrow] = logit_shift(plain, Chain(paths)(inputs)[0]).relative
    assert (shifts[True] > shifts[False]) is not int8_sums_overflow()


def test_every_candidate_is_tried_and_nobody_wins_here(segments, tmp_path):
    candidates = [Int8Settings("tensor"), Int8Settings("blocks", float32_layers=("*.head",))]
    inputs = texts()
    results = try_settings(
        segments, candidates, lambda paths: Chain(paths)(inputs)[0].shape, tmp_path
    )
    trials = list(results)
    assert [trial.settings for trial in trials] == candidates
    assert all(trial.outcome == (40, 3) for trial in trials)
    assert all(trial.bytes == sum(p.stat().st_size for p in trial.segments) for trial in trials)
    assert str(candidates[1]) == "scales per block; float32: *.head"


def test_results_survive_a_later_failure(segments, tmp_path):
    candidates = [Int8Settings(), Int8Settings(float32_layers=("nothing",))]
    results = try_settings(segments, candidates, len, tmp_path)
    assert next(results).outcome == 2
    with pytest.raises(UsageError, match="no layer is named 'nothing'"):
        next(results)


def test_the_layer_with_an_outlier_is_the_most_sensitive(tmp_path):
    module = text_segments((1,))[0]
    with torch.no_grad():
        module.layers[0].fall.weight[3, 5] = 60.0
        module.layers[0].rise.weight[5] = 0.0
        module.layers[0].rise.bias[5] = -20.0
    paths = [export_onnx(module, texts(2, 8), tmp_path / "plain.onnx")]
    settings = Int8Settings("tensor")
    ranking = sensitivities(paths, texts(), tmp_path / "work" / "here", settings)
    assert ranking[0][0] == "0.layers.0.fall"
    assert ranking[0][1].relative > 2 * ranking[1][1].relative
    whole = [layer for layer in quantisable_layers(paths) if layer != ranking[0][0]]
    alone = quantise(paths, tmp_path / "alone", replace(settings, float32_layers=tuple(whole)))
    shift = logit_shift(Chain(paths)(texts())[0], Chain(alone)(texts())[0])
    assert ranking[0][1].relative == pytest.approx(shift.relative, rel=1e-5)
    assert len(ranking) == 5
    assert list((tmp_path / "work" / "here").iterdir()) == []
    plain = Chain(paths)(texts())[0]
    shifts = {
        scales: logit_shift(plain, Chain(quantise(paths, tmp_path / scales, variant))(texts())[0])
        for scales, variant in (("tensor", settings), ("channel", Int8Settings("channel")))
    }
    assert shifts["tensor"].relative > 2 * shifts["channel"].relative


def test_wrong_settings_are_refused(segments):
    with pytest.raises(UsageError, match="did you mean 'channel'"):
        Int8Settings("chanel")
    with pytest.raises(UsageError, match="reduce_range"):
        Int8Settings("blocks", reduce_range=True)
    with pytest.raises(UsageError, match="give another folder"):
        quantise(segments, segments[0].parent)
    with pytest.raises(UsageError, match="no exported segment"):
        quantise([segments[0].with_name("none.onnx")], segments[0].parent / "new")


def test_segments_of_one_name_would_be_one_file(segments, tmp_path):
    copy = tmp_path / "other" / segments[0].name
    copy.parent.mkdir()
    shutil.copy(segments[0], copy)
    with pytest.raises(UsageError, match="two segments are named"):
        quantise([segments[0], copy], tmp_path / "new")


def test_a_shift_by_hand():
    reference = torch.tensor([[1.0, -1.0], [2.0, -2.0]])
    shift = logit_shift(reference, torch.tensor([[1.0, -1.0], [-1.0, 1.0]]))
    assert (shift.examples, shift.largest, shift.changed) == (2, 3.0, 1)
    assert shift.relative == pytest.approx((18 / 4) ** 0.5 / (10 / 4) ** 0.5)
    assert logit_shift(reference, reference).relative == 0


def test_pytorchs_own_int8_is_near_too():
    modules = text_segments()
    inputs = texts()
    chain = Chain([quantise_module(module) for module in modules])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        shift = logit_shift(Chain(modules)(inputs)[0], chain(inputs)[0])
    assert 1e-4 < shift.relative < 0.1
    assert isinstance(modules[0].head, torch.nn.Linear)
