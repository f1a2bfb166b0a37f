"""Longer models: the ends and the old length stay, the pad's rows too, and nothing else changes."""

from __future__ import annotations

import pytest
import torch
import transformers

import sparing
from sparing.core.errors import Unsupported, UsageError
from sparing.transfer.opening import open_model
from sparing.transfer.positions import interpolated
from tests.transfer import families
from tests.transfer.classifiers import TEXT, dense, near, texts

OFFSETS = {"bert": 0, "electra": 0, "roberta": 1, "xlm-roberta": 1, "camembert": 1}
OLD, NEW = 20, 31


def table(model):
    return model.base_model.embeddings.position_embeddings


@pytest.mark.parametrize("family", OFFSETS)
def test_ends_stay_and_the_rest_lies_between(family):
    model, offset = dense(family), OFFSETS[family]
    longer = sparing.lengthen(model, NEW)
    old, new = table(model).weight, table(longer).weight
    assert longer.config.max_position_embeddings == len(new) == offset + NEW
    assert torch.equal(new[:offset], old[:offset])
    near(new[offset], old[offset])
    near(new[-1], old[-1])
    position = 7 * (OLD - offset - 1) / (NEW - 1)
    low, rest = int(position), position % 1
    near(new[offset + 7], (1 - rest) * old[offset + low] + rest * old[offset + low + 1])


@pytest.mark.parametrize("family", OFFSETS)
def test_it_reads_as_many_tokens_as_asked_and_no_more(family):
    longer = sparing.lengthen(dense(family), NEW)
    given = texts([NEW, 9])
    assert longer(**given).logits.shape == (2, 3)
    assert sparing.adapt(longer).longest == NEW
    with pytest.raises((IndexError, RuntimeError)):
        longer(**texts([NEW + 1]))


@pytest.mark.parametrize("family", OFFSETS)
def test_the_old_length_is_the_same_model(family):
    model = dense(family)
    same = sparing.lengthen(model, OLD - OFFSETS[family])
    given = texts([19 - OFFSETS[family], 9])
    assert torch.equal(same(**given).logits, model(**given).logits)
    assert same is not model
    assert table(same).weight is not table(model).weight


def test_the_original_is_left_as_it_was():
    model = dense("roberta")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    sparing.lengthen(model, NEW)
    assert model.config.max_position_embeddings == OLD
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert model.base_model.embeddings.position_ids.shape == (1, OLD)


def test_all_else_is_copied_and_trains():
    model = dense("roberta")
    longer = sparing.lengthen(model, NEW)
    state = longer.state_dict()
    for name, value in model.state_dict().items():
        if "position_embeddings" not in name:
            assert torch.equal(state[name], value)
    longer(**texts([NEW])).logits.sum().backward()
    gradient = table(longer).weight.grad
    assert gradient[1:].abs().sum() > 0
    assert gradient[0].abs().sum() == 0  # the pad's row


def test_saved_and_loaded_it_is_the_same(tmp_path):
    longer = sparing.lengthen(dense("bert"), NEW)
    longer.save_pretrained(tmp_path)
    again = open_model(str(tmp_path)).double()
    given = texts([NEW, 5])
    near(again(**given).logits, longer(**given).logits)


def test_an_adaptive_form_can_be_lengthened_too():
    adaptive = sparing.adapt(dense("bert"))
    longer = sparing.lengthen(adaptive, NEW)
    given = texts([NEW, 5])
    near(longer(**given).logits, sparing.lengthen(dense("bert"), NEW)(**given).logits)
    assert adaptive.longest == OLD
    assert longer.longest == NEW


def test_distilbert_and_other_heads():
    model = families.build("distilbert")
    longer = sparing.lengthen(model, 60)
    ids = torch.randint(3, 50, (1, 60))
    assert longer(input_ids=ids).last_hidden_state.shape == (1, 60, 32)
    with torch.no_grad():
        expected = families.build("bert")
    assert sparing.lengthen(expected, 60)(input_ids=ids).logits.shape == (1, 60, 50)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_types_are_kept(dtype):
    rows = torch.randn(5, 3, generator=torch.Generator().manual_seed(0)).to(dtype)
    resized = interpolated(rows, 9)
    assert resized.dtype == dtype
    assert torch.equal(resized[::2], rows)
    assert torch.equal(interpolated(rows, 5), rows)


def test_one_position_fills_all():
    assert torch.equal(interpolated(torch.ones(1, 2), 3), torch.ones(3, 2))


@pytest.mark.parametrize("tokens", [19, 0, -1])
def test_fewer_tokens_are_refused(tokens):
    with pytest.raises(UsageError, match="at least the 20 tokens"):
        sparing.lengthen(dense("bert"), tokens)


def test_other_models_are_refused_with_the_reason():
    with pytest.raises(Unsupported, match=r"vit cannot.*interpolate_pos_encoding"):
        sparing.lengthen(dense("vit"), 100)
    with pytest.raises(Unsupported, match="gpt2 cannot be lengthened; bert, "):
        sparing.lengthen(families.build("gpt2"), 100)
    with pytest.raises(UsageError, match="Linear"):
        sparing.lengthen(torch.nn.Linear(2, 2), 100)
    swapped = dense("bert")
    sparing.swap(swapped, "linear")
    with pytest.raises(Unsupported, match="unswap"):
        sparing.lengthen(swapped, 100)
    sparing.unswap(swapped)
    assert sparing.lengthen(swapped, 100).config.max_position_embeddings == 100


def test_two_tables_are_refused():
    config = transformers.BertConfig(**TEXT, hidden_size=16, num_attention_heads=4)
    model = transformers.BertModel(config)
    model.second = torch.nn.Module()
    model.second.position_embeddings = torch.nn.Embedding(4, 16)
    with pytest.raises(Unsupported, match="has 2"):
        sparing.lengthen(model, 100)
