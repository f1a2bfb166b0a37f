"""Turned heads compute the same, and their first coordinates say more."""

from __future__ import annotations

import pytest
import torch

import sparing
from sparing.core.errors import Unsupported, UsageError
from sparing.transfer.families.known import find_blocks
from sparing.transfer.rotating import rotate
from tests.transfer import families
from tests.transfer.test_importance import CLASSIFIERS, classifier

BERT_PADS = (3, 5)


def inputs(family):
    given = families.inputs(family, batch=4, tokens=9)
    if "input_ids" in given:
        given["attention_mask"] = torch.ones_like(given["input_ids"])
        given["attention_mask"][0, BERT_PADS[0] :] = 0
    return given


@pytest.mark.parametrize("family", CLASSIFIERS)
def test_the_model_computes_what_it_did(family):
    model, given = classifier(family), inputs(family)
    expected = families.output(model, given)
    before = [block.projections["q"].weight.clone() for block in find_blocks(model)]
    rotate(model, [given])
    torch.testing.assert_close(families.output(model, given), expected, rtol=1e-6, atol=1e-6)
    for block, weight in zip(find_blocks(model), before, strict=True):
        assert not torch.allclose(block.projections["q"].weight, weight, atol=1e-3)


@pytest.mark.parametrize("reduce", ["qk", "qkv"])
def test_the_first_coordinates_say_more(reduce):
    model, given = classifier("bert"), inputs("bert")
    with torch.no_grad():
        for block in find_blocks(model):  # heads whose first half says next to nothing
            for stream in "qkv":
                rows = block.projections[stream].weight.view(-1, 8, 32)
                rows[:, :4] *= 0.05
    expected = families.output(model, given)
    errors = []
    for turned in (False, True):
        rotated = type(model)(model.config).double().eval()
        rotated.load_state_dict(model.state_dict())
        if turned:
            rotate(rotated, [given])
        options = {"scores": "fixed", "score": 0.5, "threshold": None, "reduce": reduce}
        sparing.swap(rotated, "adaptive", **options)
        errors.append(float((families.output(rotated, given) - expected).abs().mean()))
    assert errors[1] < 0.5 * errors[0]


def test_pads_do_not_count():
    given = inputs("bert")
    other = {name: value.clone() for name, value in given.items()}
    other["input_ids"][0, BERT_PADS[0] :] = 1
    models = [classifier("bert"), classifier("bert")]
    for model, batch in zip(models, (given, other), strict=True):
        rotate(model, [batch])
    for first, second in zip(*(find_blocks(model) for model in models), strict=True):
        torch.testing.assert_close(first.output.weight, second.output.weight)


def test_pruned_heads_turn_too():
    model, given = classifier("bert"), inputs("bert")
    sparing.prune(model, {0: [1], 1: [0, 1, 2, 3]})
    expected = families.output(model, given)
    rotate(model, [given])
    torch.testing.assert_close(families.output(model, given), expected, rtol=1e-6, atol=1e-6)


def test_what_cannot_be_turned_is_left_untouched():
    model = classifier("bert")
    state = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(UsageError, match="at least one batch"):
        rotate(model, [])
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    sparing.swap(model, "softmax")
    with pytest.raises(Unsupported, match="unswap first"):
        rotate(model, [inputs("bert")])
