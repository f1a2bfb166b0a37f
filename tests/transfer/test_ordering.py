"""Ordering by importance changes what is cut first, and nothing else."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch

from sparing.core.errors import UsageError
from sparing.layers.plan import full_plan
from sparing.transfer.adapting.adapt import adapt
from sparing.transfer.adapting.ordering import order_by_importance, reorder_heads, reorder_neurons
from sparing.transfer.families.known import find_blocks
from sparing.transfer.freezing import freeze
from sparing.transfer.importance import Importance, importance
from tests.transfer.classifiers import FAMILIES, HEADS, LAYERS, NEURONS, dense, inputs, near

DIM = 4


def _important(family, model):
    given = inputs(family)
    return importance(model, [{**given, "labels": torch.arange(3)}])


def _drawn(seed=0):
    """Importance in an arbitrary order."""
    generator = torch.Generator().manual_seed(seed)
    heads = torch.rand(LAYERS, HEADS, generator=generator, dtype=torch.float64)
    neurons = torch.rand(LAYERS, NEURONS, generator=generator, dtype=torch.float64)
    return Importance(heads, neurons, 1)


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_the_whole_model_answers_as_before(family):
    model, given = dense(family), inputs(family)
    adaptive = adapt(model)
    order_by_importance(adaptive, _important(family, model))
    near(adaptive(**given).logits, model(**given).logits)


@pytest.mark.parametrize("family", ["bert", "vit"])
@torch.no_grad()
def test_the_most_important_stay(family):
    """Cutting equals silencing the least important heads and neurons of the dense model."""
    model, given = dense(family), inputs(family)
    importance = _important(family, model)
    adaptive = adapt(model)
    order_by_importance(adaptive, importance)
    keep_heads, keep_neurons = (3, 1, 2, 4), (24, 5, 11, 1)
    adaptive.plan = replace(
        full_plan(adaptive.encoder.sizes), heads=keep_heads, neurons=keep_neurons
    )
    silenced = copy.deepcopy(model)
    for number, block in enumerate(find_blocks(silenced)):
        for head in importance.heads[number].argsort()[: HEADS - keep_heads[number]].tolist():
            block.output.weight[:, head * DIM : (head + 1) * DIM] = 0
        removed = importance.neurons[number].argsort()[: NEURONS - keep_neurons[number]]
        block.fall.weight[:, removed] = 0
    near(adaptive(**given).logits, silenced(**given).logits, within=1e-12)
    near(freeze(adaptive)(**given).logits, silenced(**given).logits, within=1e-12)


@torch.no_grad()
def test_the_order_is_that_of_the_importance():
    model, importance = dense(), _drawn()
    adaptive, before = adapt(model), adapt(model)
    order_by_importance(adaptive, importance)
    for number, layer in enumerate(adaptive.encoder.layers):
        plain = before.encoder.layers[number]
        heads = importance.heads[number].sort(descending=True).indices
        neurons = importance.neurons[number].sort(descending=True).indices
        assert torch.equal(layer.rise.weight, plain.rise.weight[neurons])
        assert torch.equal(layer.rise.bias, plain.rise.bias[neurons])
        assert torch.equal(layer.fall.weight, plain.fall.weight[:, neurons])
        for position, head in enumerate(heads.tolist()):
            new, old = (slice(n * 3 * DIM, (n + 1) * 3 * DIM) for n in (position, head))
            assert torch.equal(layer.projection.weight[new], plain.projection.weight[old])
            assert torch.equal(layer.projection.bias[new], plain.projection.bias[old])
            new, old = (slice(n * DIM, (n + 1) * DIM) for n in (position, head))
            assert torch.equal(layer.output.weight[:, new], plain.output.weight[:, old])


@torch.no_grad()
def test_ties_stay_in_place():
    adaptive, before = adapt(dense()), adapt(dense())
    even = Importance(torch.ones(LAYERS, HEADS), torch.ones(LAYERS, NEURONS), 1)
    order_by_importance(adaptive, even)
    for parameter, expected in zip(adaptive.parameters(), before.parameters(), strict=True):
        assert torch.equal(parameter, expected)


@torch.no_grad()
def test_an_order_and_its_inverse_cancel():
    layer = adapt(dense()).encoder.layers[0]
    before = copy.deepcopy(layer.state_dict())
    heads, neurons = torch.randperm(HEADS), torch.randperm(NEURONS)
    reorder_heads(layer, heads)
    reorder_neurons(layer, neurons)
    reorder_heads(layer, heads.argsort())
    reorder_neurons(layer, neurons.argsort())
    for name, value in layer.state_dict().items():
        assert torch.equal(value, before[name])


@pytest.mark.parametrize(
    "changes",
    [
        {"num_hidden_layers": LAYERS - 1},
        {"num_attention_heads": 2},
        {"intermediate_size": NEURONS + 1},
    ],
)
def test_another_models_importance_is_refused(changes):
    adaptive = adapt(dense())
    other = dense(**changes)
    before = [parameter.clone() for parameter in adaptive.parameters()]
    with pytest.raises(UsageError, match="does not fit a model of layers"):
        order_by_importance(adaptive, _important("bert", other))
    assert all(map(torch.equal, before, adaptive.parameters()))


def test_a_narrowed_model_refuses_the_whole_models_importance():
    adaptive = adapt(dense())
    narrow = freeze(adaptive, replace(adaptive.plan, heads=(2,) * LAYERS))
    with pytest.raises(UsageError, match="does not fit"):
        order_by_importance(narrow, _drawn())
