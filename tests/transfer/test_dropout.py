"""Dropout is turned off under every family's names, and answers stay as they are."""

from __future__ import annotations

import pytest
import torch

from sparing.models.shared.shape import image_config
from sparing.transfer.dropout import drop_nothing, without_dropout
from tests.transfer.classifiers import dense, inputs

NAMES = ("attention_probs_dropout_prob", "attention_dropout", "hidden_dropout_prob")


def rates(model):
    parts = (model.config, image_config(model.config))
    return {name: getattr(part, name) for part in parts for name in NAMES if hasattr(part, name)}


@pytest.mark.parametrize("family", ["bert", "roberta", "vit", "clip"])
def test_nothing_is_dropped_and_the_answers_are_the_same(family):
    model = dense(family)
    for part in (model.config, image_config(model.config)):
        for name in NAMES:
            if hasattr(part, name):
                setattr(part, name, 0.5)
    without = without_dropout(model)
    assert set(rates(without).values()) == {0.0}
    assert set(rates(model).values()) == {0.5}
    given = inputs(family)
    with torch.no_grad():
        torch.testing.assert_close(without.train()(**given).logits, model.eval()(**given).logits)


def test_hidden_states_may_go_on_being_dropped():
    model = dense("bert")
    model.config.attention_probs_dropout_prob = model.config.hidden_dropout_prob = 0.5
    without = without_dropout(model, hidden=False)
    assert without.config.attention_probs_dropout_prob == 0.0
    assert without.config.hidden_dropout_prob == 0.5


def test_where_nothing_is_dropped_the_model_is_itself():
    model = dense("bert")
    drop_nothing(model.config)
    assert without_dropout(model) is model
