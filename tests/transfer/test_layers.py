"""Which layers are found, what is known of them, and what is refused before anything changes."""

from __future__ import annotations

import pytest
import torch
import transformers
from torch import nn

import sparing
from sparing.transfer.layers import find_layers, projection_weights, token_limit
from tests.transfer.families import FAMILIES, SIZES, build, require_registry

SMALL = {name: SIZES[name] for name in SIZES if name != "max_position_embeddings"}
LIMITS = {
    "roberta": 38,  # two of its positions are for padding and nothing
    "mpnet": 38,
    "deberta-v2": None,  # distances have no end
    "vit": 17,
    "deit": 18,
}


@pytest.mark.parametrize("family", FAMILIES)
def test_shape_and_limit_of_every_family(family):
    model = build(family)
    layers = [layer for layer in find_layers(model) if layer.index is not None]
    assert [layer.index for layer in layers] == list(range(len(layers)))
    assert {(layer.heads, layer.dim, layer.width) for layer in layers} == {(4, 8, 32)}
    assert token_limit(model, layers[0]) == LIMITS.get(family, 40)
    assert layers[0].causal == (family in ("gpt2", "llama"))


@pytest.mark.parametrize("family", FAMILIES)
def test_the_layers_projections_are_found(family):
    model = build(family)
    layer = find_layers(model)[0]
    weights = projection_weights(layer)
    assert {name: tuple(weight.shape) for name, weight in weights.items() if len(name) == 1} == {
        "q": (32, 32),
        "k": (32, 32),
        "v": (32, 32),
    }
    module, x = layer.module, torch.randn(2, 32, dtype=torch.float64)
    if family == "gpt2":
        expected = dict(zip("qkv", module.c_attn(x[None])[0].chunk(3, -1), strict=True))
    elif family == "modernbert":
        expected = dict(zip("qkv", module.Wqkv(x).chunk(3, -1), strict=True))
    else:
        names = [name for name, _ in module.named_children()]
        expected = {
            stream: next(module.get_submodule(name)(x) for name in names if name[0] == stream)
            for stream in "qkv"
        }
    if family == "deberta-v2":
        expected["q"] = expected["q"] / 3**0.5  # one of three terms
    for stream, value in expected.items():
        if family == "llama" and stream != "q":
            value = value.view(2, 2, 1, 8).expand(2, 2, 2, 8).reshape(2, 32)
        projected = x @ weights[stream].T + weights.get(f"{stream}_bias", 0.0)
        torch.testing.assert_close(projected, value)


@pytest.mark.parametrize(
    ("kind", "config"),
    [
        (transformers.DebertaModel, transformers.DebertaConfig(**SMALL)),
        (transformers.XLMModel, transformers.XLMConfig(n_words=50, emb_dim=32, n_heads=4)),
    ],
)
def test_families_outside_the_registry_are_named(kind, config):
    with pytest.raises(sparing.Unsupported, match=f"{config.model_type}.*registry"):
        sparing.swap(kind(config), "softmax")


def test_only_transformers_models():
    with pytest.raises(sparing.UsageError, match=r"got Linear.*sparing\.Attention"):
        sparing.swap(nn.Linear(2, 2), "softmax")


def test_sliding_windows_and_capped_scores_are_known_beforehand():
    config = transformers.MistralConfig(**SIZES, num_key_value_heads=2, sliding_window=4)
    with pytest.raises(sparing.Unsupported, match=r"no layer .*sliding window"):
        sparing.swap(transformers.MistralModel(config), "softmax")
    config = transformers.Gemma2Config(**SIZES, num_key_value_heads=2, head_dim=8)
    model = transformers.Gemma2Model(config)
    reasons = [layer.obstacle for layer in find_layers(model)]
    assert "sliding window" in reasons[0]
    assert "caps its scores" in reasons[1]


def test_position_biases_are_known_beforehand():
    config = transformers.T5Config(
        vocab_size=50, d_model=32, d_kv=8, num_heads=4, d_ff=40, num_layers=1
    )
    model = transformers.T5EncoderModel(config)
    require_registry(model)
    with pytest.raises(sparing.Unsupported, match="position bias"):
        sparing.swap(model, "softmax")


def test_shared_layers_take_one_mechanism_for_all():
    model = build("albert")
    for choice in ({"layers": [0]}, {"layers": "0-"}):
        with pytest.raises(sparing.Unsupported, match=r"3 layers .* share 1 attention"):
            sparing.swap(model, "softmax", **choice)
    with pytest.raises(sparing.Unsupported, match=r"3 layers .* share 1 attention"):
        sparing.swap(model, {"0": "linear"})
    assert len(sparing.swap(model, "linear").swapped) == 1


def test_causal_layers_refuse_what_cannot_be_causal():
    model = build("gpt2")
    with pytest.raises(sparing.Unsupported, match="causal and linformer cannot"):
        sparing.swap(model, "linformer")
    with pytest.raises(sparing.Unsupported, match=r"layer 1 \(transformer\.h\.1\.attn\).*causal"):
        sparing.swap(model, {"1": "linformer", "0": "softmax"})


def test_cross_attention_of_bert_is_left():
    config = transformers.BertConfig(**SIZES, is_decoder=True, add_cross_attention=True)
    model = transformers.BertModel(config).double().eval()
    generator = torch.Generator().manual_seed(0)
    given = {
        "input_ids": torch.randint(3, 50, (2, 5), generator=generator),
        "encoder_hidden_states": torch.randn(2, 7, 32, generator=generator).double(),
        "encoder_attention_mask": torch.tensor([[1] * 7, [1] * 4 + [0] * 3]),
        "use_cache": False,
    }
    before = model(**given).last_hidden_state
    report = sparing.swap(model, "softmax")
    assert [layer.index for layer in report.left] == [None] * 3
    after = model(**given).last_hidden_state
    torch.testing.assert_close(after, before, rtol=1e-10, atol=1e-10)


def test_models_of_two_towers_keep_the_other_tower():
    sizes = {name: SIZES[name] for name in list(SIZES)[1:5]}
    config = transformers.CLIPConfig(
        text_config={**sizes, "vocab_size": 50, "max_position_embeddings": 20, "eos_token_id": 1},
        vision_config={**sizes, "image_size": 16, "patch_size": 4},
    )
    model = transformers.CLIPModel(config).double().eval()
    generator = torch.Generator().manual_seed(0)
    given = {
        "input_ids": torch.randint(3, 50, (2, 6), generator=generator),
        "pixel_values": torch.randn(2, 3, 16, 16, generator=generator).double(),
        "attention_mask": torch.tensor([[1] * 6, [1] * 4 + [0] * 2]),
    }
    before = model(**given).logits_per_image
    report = sparing.swap(model, "softmax")
    assert {layer.name.split(".")[0]: layer.tokens for layer in report.swapped} == {
        "text_model": 20,
        "vision_model": 17,
    }
    after = model(**given).logits_per_image
    torch.testing.assert_close(after, before, rtol=1e-10, atol=1e-10)
    vision = [layer.index for layer in report.swapped if layer.name.startswith("vision")]
    sparing.swap(model, "linear", layers=vision)
    assert model.text_model.config._attn_implementation == "sdpa"
    assert model.vision_model.config._attn_implementation == "sparing"


def _big_code(**changes):
    sizes = {"n_embd": 32, "n_layer": 1, "n_head": 4, "n_positions": 40, "vocab_size": 50}
    config = transformers.GPTBigCodeConfig(**sizes, **changes)
    return find_layers(transformers.GPTBigCodeModel(config))[0]


def test_fused_projections_are_cut_at_the_layers_own_sizes():
    layer = _big_code(multi_query=True)
    fused, weights = layer.module.c_attn.weight, projection_weights(layer)
    torch.testing.assert_close(weights["q"], fused[:32])
    torch.testing.assert_close(weights["k"], fused[32:40].repeat(4, 1))
    torch.testing.assert_close(weights["v_bias"], layer.module.c_attn.bias[40:].repeat(4))
    assert projection_weights(_big_code(multi_query=False)) == {}  # head by head


def test_queries_carry_a_scale_of_the_layers_own():
    plain, scaled = (
        find_layers(build("gpt2", scale_attn_weights=scales))[0] for scales in (True, False)
    )
    torch.testing.assert_close(
        projection_weights(scaled)["q"], 8**0.5 * projection_weights(plain)["q"]
    )
    torch.testing.assert_close(projection_weights(scaled)["k"], projection_weights(plain)["k"])


@pytest.mark.parametrize(("family", "known"), [("bert", True), ("llama", False)])
def test_copies_of_projections_that_turn_afterwards_count_as_untrained(family, known):
    report = sparing.swap(build(family), "longformer", radius=4)
    assert (report.untrained_params == 0) == known
