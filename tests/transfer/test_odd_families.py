"""Families whose attention differs from BERT's in ways that a swap, a cut or a turn must see."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
import transformers

import sparing
from sparing.core.errors import Unsupported
from sparing.transfer.patching import select_patches, selector_of
from sparing.transfer.pruning import prune
from sparing.transfer.rotating import rotate
from sparing.transfer.stages import freeze_layers, masked_form
from tests.transfer.classifiers import dense, images
from tests.transfer.families import require_registry

SMALL = {
    "vocab_size": 50,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 24,
    "max_position_embeddings": 32,
}
IDS = {"input_ids": torch.arange(4, 16).view(2, 6)}


def model(kind, **changes) -> Any:
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**{**SMALL, **changes})
    return getattr(transformers, f"{kind}Model")(config).eval()


def test_positions_that_turn_queries_and_keys_are_not_rotated():
    turning = model("Esm", position_embedding_type="rotary", pad_token_id=1, mask_token_id=2)
    before = turning(**IDS).last_hidden_state
    with pytest.raises(Unsupported, match="rotates queries and keys by position"):
        rotate(turning, [IDS])
    assert torch.equal(turning(**IDS).last_hidden_state, before)


@pytest.mark.parametrize(
    "bias", ["use_relative_position_bias", "use_shared_relative_position_bias"]
)
def test_heads_with_a_position_bias_of_their_own_are_not_pruned(bias):
    sizes = {"image_size": 16, "patch_size": 8, "num_channels": 1, "vocab_size": 50}
    biased = model("Beit", **{**sizes, bias: True})
    require_registry(biased)
    given = torch.randn(2, 1, 16, 16)
    before = biased(given).last_hidden_state
    with pytest.raises(Unsupported, match="position bias for each head"):
        prune(biased, {0: [1]})
    assert torch.equal(biased(given).last_hidden_state, before)


def test_an_encoder_that_does_not_say_whether_it_is_causal_is_not():
    splinter = model("Splinter")
    if not hasattr(inspect.getmodule(splinter), "create_bidirectional_mask"):
        pytest.skip("Splinter of this transformers builds its mask itself")
    report = sparing.swap(splinter, "linformer", slots=4, tokens=8)
    assert len(report.swapped) == 2


def test_a_model_that_hands_on_finished_masks_is_refused():
    with pytest.raises(Unsupported, match="passes every layer a finished mask"):
        sparing.swap(model("LayoutLM"), "softmax")


@pytest.mark.parametrize("mechanism", ["longformer", "lisa", "adaptive"])
def test_a_layer_with_several_inputs_is_left_by_who_reads_one(mechanism):
    given = model("MobileBert", embedding_size=16, intra_bottleneck_size=8)
    with pytest.raises(Unsupported, match="reads its input, and it has several"):
        sparing.swap(given, mechanism)
    assert len(sparing.swap(given, "linear").swapped) == 2


def test_a_fused_projection_is_used_while_any_part_of_it_is_read():
    config = transformers.GPT2Config(vocab_size=50, n_positions=32, n_embd=16, n_layer=1, n_head=4)
    report = sparing.swap(transformers.GPT2Model(config), "ecoformer")
    assert report.swapped[0].unused == ()


def test_a_masked_model_of_a_classifier_that_drops_patches_has_them_all(tmp_path):
    classifier = dense("vit").float()
    select_patches(classifier, "contrast", keep=0.5)
    masked_form(classifier).save_pretrained(tmp_path)
    assert selector_of(sparing.load(tmp_path)) is None


def test_what_transformers_alone_read_is_not_noted_again(tmp_path):
    classifier, given = dense("vit").float(), images(2)
    given = {name: value.float() for name, value in given.items()}
    select_patches(classifier, "contrast", keep=0.5)
    classifier.save_pretrained(tmp_path / "patched")
    plain = transformers.ViTForImageClassification.from_pretrained(tmp_path / "patched").eval()
    sparing.swap(plain, "softmax")
    plain.save_pretrained(tmp_path / "swapped")
    again = sparing.load(tmp_path / "swapped").eval()
    assert selector_of(again) is None
    assert torch.allclose(again(**given).logits, plain(**given).logits, atol=1e-6)


def test_the_norm_before_the_first_layer_is_frozen_with_it():
    clip = dense("clip")
    freeze_layers(clip, 1)
    learning = {name for name, part in clip.named_parameters() if part.requires_grad}
    assert not any("pre_layrnorm" in name for name in learning)
    assert any("layers.1" in name for name in learning)
