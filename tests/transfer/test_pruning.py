"""Pruned heads: equal to gates of zero, really smaller, and saved and loaded as they are."""

from __future__ import annotations

import copy
import itertools
import json

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import sparing
from sparing.core.errors import CheckpointError, Unsupported, UsageError
from sparing.transfer.families.known import find_blocks
from sparing.transfer.importance import importance
from tests.transfer import families
from tests.transfer.test_importance import CLASSIFIERS, batch, classifier

SOME = {0: [1], 1: [0, 3], 2: [0, 1, 2]}


def gated(model, heads):
    """A copy whose named heads (of 8 coordinates) are not read by the output projection."""
    twin = copy.deepcopy(model)
    with torch.no_grad():
        for index, numbers in heads.items():
            for head in numbers:
                find_blocks(twin)[index].output.weight[:, 8 * head : 8 * head + 8] = 0
    return twin


def assert_same(model, reference, given):
    torch.testing.assert_close(
        families.output(model, given), families.output(reference, given), rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize("family", CLASSIFIERS)
@pytest.mark.parametrize("heads", [SOME, {1: [0, 1, 2, 3], 2: [3]}], ids=["some", "all of one"])
def test_equals_gates_of_zero_and_comes_back(family, heads, tmp_path):
    model, given = classifier(family), batch(family)
    reference = gated(model, heads)
    report = sparing.prune(model, heads)
    assert_same(model, reference, given)
    torch.testing.assert_close(model(**given).loss, reference(**given).loss)
    assert report.removed == sum(map(len, heads.values()))
    assert report.removed_params == report.removed * (4 * 8 * 32 + 3 * 8)
    model.save_pretrained(tmp_path)
    loaded = sparing.load(tmp_path)
    assert type(loaded) is type(model)
    assert loaded.config.sparing == model.config.sparing
    for name, value in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], value), name
    assert_same(loaded, reference, given)


def test_step_by_step_is_all_at_once():
    given = batch("bert")
    once, twice = classifier("bert"), classifier("bert")
    sparing.prune(once, SOME)
    sparing.prune(twice, {1: [3], 2: [1]})
    report = sparing.prune(twice, {0: [1], 1: [0], 2: [0, 2]})
    assert once.config.sparing == twice.config.sparing
    assert [layer.removed for layer in report.layers] == [(1,), (0, 3), (0, 1, 2)]
    assert_same(once, twice, given)


def test_importance_keeps_the_first_numbers():
    model, given = classifier("bert"), batch("bert")
    masked = importance(gated(model, SOME), [given])
    sparing.prune(model, SOME)
    scores = importance(model, [given])
    assert scores.heads.shape == (3, 4)
    for index, numbers in SOME.items():
        assert (scores.heads[index, numbers] == 0).all()
    torch.testing.assert_close(scores.heads, masked.heads, rtol=1e-9, atol=1e-12)
    sparing.prune(model, {0: [0, 2, 3]})
    assert (importance(model, [given]).heads[0] == 0).all()


def test_the_least_important_go_first_and_are_measured_anew():
    model, given = classifier("vit"), batch("vit")
    for index, numbers in SOME.items():
        block = find_blocks(model)[index]
        with torch.no_grad():
            for head in numbers:
                block.output.weight[:, 8 * head : 8 * head + 8] *= 1e-6
    messages = []
    report = sparing.prune(
        model, 0.5, [given], step=0.17, on_progress=lambda done, text: messages.append((done, text))
    )
    assert {layer.index: list(layer.removed) for layer in report.layers} == SOME
    assert [text for _, text in messages] == [f"{n} of 12 heads removed" for n in (2, 4, 6)]
    assert messages[-1][0] == 1
    assert "1: 2 of 4 heads left; removed: 0, 3" in str(report)
    json.dumps(report.to_dict())
    further = sparing.prune(model, 0.6, [given])
    assert further.removed == 7
    with pytest.raises(UsageError, match="7 of 12 heads are removed already"):
        sparing.prune(model, 0.5, [given])


def flops(model, given):
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(**given)
    return counter.get_total_flops()


def test_executed_flops_fall_with_the_heads():
    given = batch("bert", tokens=32)
    counts = []
    for removed in ([], [0], [0, 1], [0, 1, 2], [0, 1, 2, 3]):
        model = classifier("bert")
        model.set_attn_implementation("eager")
        if removed:
            sparing.prune(model, dict.fromkeys(range(3), removed))
        counts.append(flops(model, given))
    steps = {before - after for before, after in itertools.pairwise(counts)}
    projections, core = 4 * 2 * 32 * 8, 2 * 2 * 32 * 8
    assert steps == {3 * 4 * 32 * (projections + core)}


@pytest.mark.parametrize("family", ["bert", "vit"])
def test_a_pruned_model_can_be_swapped_and_saved(family, tmp_path):
    model, given = classifier(family), batch(family)
    sparing.prune(model, {1: [0, 1, 2, 3], 2: [1]})
    expected = families.output(model, given)
    report = sparing.swap(model, "softmax")
    assert [layer.index for layer in report.swapped] == [0, 2]
    assert "all its heads were pruned" in report.left[0].reason
    torch.testing.assert_close(families.output(model, given), expected, rtol=1e-10, atol=1e-10)
    model.save_pretrained(tmp_path)
    loaded = sparing.load(tmp_path)
    assert loaded.config.sparing == model.config.sparing
    torch.testing.assert_close(families.output(loaded, given), expected, rtol=1e-10, atol=1e-10)
    sparing.unswap(loaded)
    assert "swap" not in loaded.config.sparing
    torch.testing.assert_close(families.output(loaded, given), expected, rtol=1e-12, atol=1e-12)
    with pytest.raises(Unsupported, match="unswap first"):
        sparing.prune(model, {0: [0]})


def test_a_pruned_model_trains():
    model, given = classifier("bert"), batch("bert")
    sparing.prune(model, {0: [0, 1, 2, 3], 1: [2]})
    model.train()
    model(**given).loss.backward()
    read = [p for name, p in model.named_parameters() if "pooler" not in name and p.numel()]
    assert all(parameter.grad is not None for parameter in read)


def test_another_model_of_the_same_configuration_is_untouched():
    model = classifier("bert")
    other = type(model)(model.config)
    sparing.prune(model, {0: [0]})
    assert not hasattr(other.config, "sparing")
    assert len(find_blocks(other)[0].remaining) == 4


def test_what_cannot_be_pruned_says_why():
    model, given = classifier("bert"), batch("bert")
    state = {name: value.clone() for name, value in model.state_dict().items()}
    for heads, reason in (
        ({3: [0]}, "no layer 3; the model has 0 to 2"),
        ({0: [1], 1: [4]}, "layer 1 has no head 4; it has 0, 1, 2, 3"),
        ({0: [True]}, "no head True"),
        ({0: []}, "no heads were named"),
        (0.0, "share between 0 and 1"),
        (1.0, "share between 0 and 1"),
        (0.99, "would leave none"),
        (0.01, "0 of 12 heads are removed already"),
    ):
        with pytest.raises(UsageError, match=reason):
            sparing.prune(model, heads, [given])
    with pytest.raises(UsageError, match="needs batches"):
        sparing.prune(model, 0.5)
    assert not hasattr(model.config, "sparing")
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    with pytest.raises(Unsupported, match="not an encoder"):
        sparing.prune(families.build("llama"), {0: [0]})


def test_grouped_keys_are_refused():
    model = classifier("bert")
    attention = find_blocks(model)[1].attention
    attention.key = torch.nn.Linear(32, 16)
    with pytest.raises(Unsupported, match=r"layer\.1\.attention.* groups its keys"):
        sparing.prune(model, {0: [0]})


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ({}, "damaged row"),
        ([{"layer": 0}], "damaged row"),
        ([{"layer": 0, "heads": [1]}, {"layer": 0, "heads": [2]}], "damaged row"),
        ([{"layer": 7, "heads": [1]}], "no layer 7"),
        ([{"layer": 0, "heads": [9]}], "no head 9"),
        ([{"layer": 0, "heads": [1]}], "mismatched weights"),
        ([], "lists no|mismatched weights"),
    ],
)
def test_damaged_checkpoints(rows, reason, tmp_path):
    model = classifier("bert")
    sparing.prune(model, {0: [1, 2]})
    model.save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    content = json.loads(file.read_text())
    content["sparing"]["pruned"] = rows
    file.write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match=reason) as caught:
        sparing.load(tmp_path)
    assert str(tmp_path) in str(caught.value)
