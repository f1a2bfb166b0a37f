"""What one stage of training leaves to the next, and what stays as it is."""

from __future__ import annotations

import pytest
import torch
import transformers

from sparing.core.errors import Unsupported, UsageError
from sparing.transfer.stages import carry_encoder, freeze_layers, masked_form, renew_layers

SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "image_size": 8,
    "patch_size": 2,
    "num_channels": 1,
}


def classifier(kind="ViT", **more):
    config = getattr(transformers, f"{kind}Config")(**SIZES, **more)
    return getattr(transformers, f"{kind}ForImageClassification")(config).eval()


def layer_names(model):
    """The names of the encoder's layers, which releases of transformers give differently."""
    return [name for name, part in model.named_modules() if type(part).__name__ == "ViTLayer"]


@pytest.mark.parametrize("kind", ["ViT", "DeiT"])
def test_the_masked_form_has_the_encoder_and_gives_it_back(kind):
    dense = classifier(kind)
    masked = masked_form(dense)
    assert type(masked).__name__ == f"{kind}ForMaskedImageModeling"
    pixels = torch.randn(2, 1, 8, 8)
    with torch.no_grad():
        output, masked_output = (m.base_model(pixel_values=pixels) for m in (dense, masked))
        assert torch.equal(output.last_hidden_state, masked_output.last_hidden_state)
        made = masked(
            pixels,
            bool_masked_pos=torch.zeros(2, 16, dtype=torch.bool).index_fill(
                1, torch.tensor([3]), True
            ),
        )
        assert made.reconstruction.shape == pixels.shape
        for value in masked.parameters():
            value.add_(0.1)
    fresh, head = classifier(kind), classifier(kind).classifier
    fresh.classifier.load_state_dict(head.state_dict())
    carry_encoder(masked, fresh)
    with torch.no_grad():
        output, masked_output = (m.base_model(pixel_values=pixels) for m in (fresh, masked))
    assert torch.equal(output.last_hidden_state, masked_output.last_hidden_state)
    assert torch.equal(fresh.classifier.weight, head.weight)


def test_the_same_seed_draws_the_same_decoder():
    dense = classifier()
    first, again, other = (masked_form(dense, seed=seed).decoder[0].weight for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_encoders_that_differ_are_refused_and_nothing_is_copied():
    small, large = classifier(), classifier(qkv_bias=False)
    before = {name: value.clone() for name, value in large.state_dict().items()}
    with pytest.raises(UsageError, match="differ"):
        carry_encoder(small, large)
    assert all(torch.equal(before[name], value) for name, value in large.state_dict().items())


def test_frozen_layers_learn_nothing_and_can_be_let_go():
    model = classifier()
    freeze_layers(model, 2)
    learning = {name for name, value in model.named_parameters() if value.requires_grad}
    assert learning
    first, second, third = layer_names(model)
    assert not any(name.startswith(("vit.embeddings", first, second)) for name in learning)
    assert any(name.startswith(third) for name in learning)
    assert {"classifier.weight", "vit.layernorm.weight"} <= learning
    freeze_layers(model, 0)
    assert all(value.requires_grad for value in model.parameters())


def test_renewed_layers_and_the_head_are_new_and_the_rest_is_not():
    model = classifier()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    renew_layers(model, 1, seed=3)
    changed = {n for n, value in model.state_dict().items() if not torch.equal(before[n], value)}
    assert "classifier.weight" in changed
    assert changed <= {n for n in before if n.startswith((layer_names(model)[2], "classifier"))}
    assert len(changed) > 4
    again = classifier()
    again.load_state_dict(before)
    renew_layers(again, 1, seed=3)
    assert all(torch.equal(value, again.state_dict()[n]) for n, value in model.state_dict().items())


@pytest.mark.parametrize("change", [freeze_layers, renew_layers])
@pytest.mark.parametrize("layers", [-1, 4])
def test_layers_that_are_not_there_are_named(change, layers):
    with pytest.raises(UsageError, match="3 layers"):
        change(classifier(), layers)


def test_texts_have_no_masked_form():
    config = transformers.BertConfig(
        vocab_size=20, hidden_size=16, num_hidden_layers=1, num_attention_heads=2
    )
    with pytest.raises(Unsupported, match="texts"):
        masked_form(transformers.BertForSequenceClassification(config))


@pytest.mark.parametrize("layers", [0, 1])
def test_the_pooler_is_renewed_with_the_layer_below_it(layers):
    config = transformers.BertConfig(
        vocab_size=20,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
    )
    model = transformers.BertForSequenceClassification(config)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    renew_layers(model, layers)
    changed = {n for n, value in model.state_dict().items() if not torch.equal(before[n], value)}
    assert ("bert.pooler.dense.weight" in changed) == bool(layers)
    assert "classifier.weight" in changed
    assert not any(name.startswith("bert.embeddings") for name in changed)
