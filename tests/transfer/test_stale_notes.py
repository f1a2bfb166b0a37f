"""What a configuration notes of another model, and what a part of a model cannot save."""

from __future__ import annotations

import warnings

import pytest
import torch
import transformers
from huggingface_hub.errors import StrictDataclassFieldValidationError

import sparing
from sparing.core.errors import CheckpointError, Unsupported
from sparing.transfer.dropout import without_dropout
from sparing.transfer.pruning import pruned_layers
from sparing.transfer.swap import entry_of
from tests.transfer.classifiers import dense, images, texts

TOWER = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
}
TEXT = {"vocab_size": 50, "max_position_embeddings": 20}


def logits(model, given):
    with torch.no_grad():
        return model(**given).logits


def read_plainly(model, folder):
    """What transformers makes of a changed model's folder: a plain one with the entry still on."""
    model.save_pretrained(folder)
    return type(model).from_pretrained(folder, dtype=torch.float64).eval()


def encoder_decoder():
    torch.manual_seed(0)
    kinds = transformers.BertConfig(**TOWER, **TEXT)
    decoder = transformers.BertConfig(**TOWER, **TEXT, is_decoder=True, add_cross_attention=True)
    towers = {
        "encoder": transformers.BertModel(kinds),
        "decoder": transformers.BertLMHeadModel(decoder),
    }
    try:
        model = transformers.EncoderDecoderModel(**towers)
    except StrictDataclassFieldValidationError:
        pytest.skip("this transformers declares EncoderDecoderConfig as huggingface_hub refuses it")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
    return model.eval(), {**texts([9, 4, 7]), "decoder_input_ids": texts([5, 5, 5])["input_ids"]}


def test_a_tower_with_a_configuration_of_its_own_is_swapped_with_pads_too(tmp_path):
    model, given = encoder_decoder()
    assert model.encoder.config is not model.encoder.encoder.layer[0].attention.self.config
    before = logits(model, given)
    sparing.swap(model, "linear")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing falls back
        swapped = logits(model, given)
    assert (swapped - before).abs().max() > 1e-3
    model.save_pretrained(tmp_path)
    torch.testing.assert_close(logits(sparing.load(tmp_path).eval(), given), swapped)
    sparing.unswap(model)
    assert model.encoder.config._attn_implementation == "sdpa"
    torch.testing.assert_close(logits(model, given), before)


def test_weights_of_a_swap_that_nobody_noted_are_not_dropped(tmp_path):
    model = dense("bert")
    sparing.swap(model.bert, "linformer", slots=4)
    model.save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match=r"unexpected weights.*sparing"):
        sparing.load(tmp_path)


@pytest.mark.parametrize("family", ["bert", "vit"])
def test_a_plain_model_read_from_a_changed_ones_folder_adapts_as_it_is(family, tmp_path):
    model, given = dense(family), images() if family == "vit" else texts([9, 4, 7])
    if family == "vit":
        sparing.select_patches(model, keep=2)
    else:
        sparing.swap(model, "linear")
    plain = read_plainly(model, tmp_path)
    assert entry_of(plain).keys() <= {"version"}
    torch.testing.assert_close(logits(sparing.adapt(plain), given), logits(plain, given))


def test_a_whole_model_of_a_pruned_ones_configuration_is_whole(tmp_path):
    pruned = dense("bert")
    sparing.prune(pruned, {0: [1], 1: [0, 2]})
    whole = type(pruned)(pruned.config).double().eval()
    assert [layer.removed for layer in pruned_layers(whole)] == [()] * 4
    report = sparing.prune(whole, {2: [0]})
    assert report.removed == 1
    whole.save_pretrained(tmp_path)
    given = texts([9, 4, 7])
    torch.testing.assert_close(logits(sparing.load(tmp_path), given), logits(whole, given))


def test_an_encoder_without_its_pooler_comes_back(tmp_path):
    config = transformers.BertConfig(**TOWER, **TEXT)
    for name, change in (("plain", None), ("swapped", "linear")):
        model = transformers.BertModel(config, add_pooling_layer=False).eval()
        if change:
            sparing.swap(model, change)
        model.save_pretrained(tmp_path / name)
        loaded = sparing.load(tmp_path / name).eval()
        given = texts([9, 4, 7])
        with torch.no_grad():
            pair = (network(**given).last_hidden_state for network in (loaded, model))
        torch.testing.assert_close(*pair)


@pytest.mark.parametrize("change", ["swap", "pruned", "adaptive"])
def test_dropout_stays_where_the_weights_would_not_fit(change):
    model = dense("bert")
    model.config.hidden_dropout_prob = 0.5
    if change == "swap":
        sparing.swap(model, "linear")
    elif change == "pruned":
        sparing.prune(model, {0: [1]})
    else:
        model = sparing.adapt(model)
    with pytest.raises(Unsupported, match=change):
        without_dropout(model)
