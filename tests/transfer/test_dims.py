"""Narrower heads: exact at full width, best at less, and really smaller."""

from __future__ import annotations

import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification

import sparing
from sparing.core.errors import UsageError
from sparing.transfer.adapting.adapt import adapt
from sparing.transfer.dims import moments_of, narrow_heads

SIZES = {
    "vocab_size": 60,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "num_labels": 3,
}


@pytest.fixture
def model():
    torch.manual_seed(0)
    dense = BertForSequenceClassification(BertConfig(**SIZES)).double().eval()
    with torch.no_grad():
        for parameter in dense.parameters():
            parameter += 0.2 * torch.randn_like(parameter)
    return adapt(dense)


@pytest.fixture
def batches():
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(1, 60, (16, 9), generator=generator)
    keep = torch.ones_like(ids)
    keep[3, 5:] = 0
    return [
        {"input_ids": part, "attention_mask": mask}
        for part, mask in zip(ids.split(8), keep.split(8), strict=True)
    ]


def logits(model, batches):
    with torch.no_grad():
        return torch.cat([model(**batch).logits for batch in batches])


def test_at_full_width_nothing_changes(model, batches):
    same = narrow_heads(model, batches, query_dim=8, value_dim=8)
    assert torch.allclose(logits(same, batches), logits(model, batches), atol=1e-8)


def test_gates_and_confidence_heads_come_along(model, batches):
    model.encoder.add_gates("skim", (1,))
    model.encoder.add_confidences((2,))
    smaller = narrow_heads(model, batches, query_dim=4, value_dim=8)
    assert len(smaller.encoder.gates) == len(model.encoder.gates) == 1
    assert len(smaller.encoder.confidences) == len(model.encoder.confidences) == 1


def test_modes_of_single_modules_are_left(model, batches):
    model.train()
    model.embeddings.eval()
    narrow_heads(model, batches, query_dim=4, value_dim=8)
    assert (model.training, model.embeddings.training) == (True, False)


@pytest.mark.parametrize(("query_dim", "value_dim"), [(4, 8), (8, 4), (5, 3)])
def test_less_costs_less_and_stays_near(model, batches, query_dim, value_dim):
    before = {name: value.clone() for name, value in model.state_dict().items()}
    smaller = narrow_heads(model, batches, query_dim=query_dim, value_dim=value_dim)
    rows = 4 * (2 * query_dim + value_dim)
    assert smaller.encoder.layers[0].projection.weight.shape == (rows, 32)
    assert smaller.encoder.layers[0].output.weight.shape == (32, 4 * value_dim)
    assert all(torch.equal(before[n], v) for n, v in model.state_dict().items())
    with sparing.record(smaller) as log, torch.no_grad():
        smaller(**batches[0])
    with sparing.record(model) as full, torch.no_grad():
        model(**batches[0])
    assert bool((log["encoder/flops"][0] < full["encoder/flops"][0]).all())


def plain_cut(model, dim):
    """The first coordinates of the heads as they are, for the scores alone."""
    with torch.no_grad():
        for layer in model.encoder.layers:
            rows = layer.projection.weight.view(4, layer.head_rows, -1)
            bias = layer.projection.bias.view(4, layer.head_rows)
            rows[:, dim:8] = 0
            bias[:, dim:8] = 0
    return model


def test_the_data_choose_better_than_the_order_does(model, batches):
    exact = logits(model, batches)
    chosen = logits(narrow_heads(model, batches, query_dim=4, value_dim=8), batches)
    plain = logits(plain_cut(model, 4), batches)
    assert (chosen - exact).square().mean() < 0.5 * (plain - exact).square().mean()


def test_moments_look_at_real_tokens_alone(model, batches):
    noisy = [{name: value.clone() for name, value in batch.items()} for batch in batches]
    noisy[0]["input_ids"][3, 5:] = 7
    for moments, expected in zip(moments_of(model, batches), moments_of(model, noisy), strict=True):
        assert torch.equal(moments.keys, expected.keys)


def test_it_saves_and_loads(model, batches, tmp_path):
    smaller = narrow_heads(model, batches, query_dim=4, value_dim=6)
    smaller.save_pretrained(tmp_path)
    again = sparing.load(tmp_path)
    assert torch.equal(logits(again, batches), logits(smaller, batches))


def test_bad_widths_and_no_data_are_named(model, batches):
    with pytest.raises(UsageError, match="query_dim must be from 1 to 8"):
        narrow_heads(model, batches, query_dim=9, value_dim=8)
    with pytest.raises(UsageError, match="value_dim"):
        narrow_heads(model, batches, query_dim=8, value_dim=0)
    with pytest.raises(UsageError, match="at least one batch"):
        narrow_heads(model, [], query_dim=4, value_dim=4)
