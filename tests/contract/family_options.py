"""Unusual options of every family: served with transformers' answers, or refused by name."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import sparing
from sparing.core.errors import Unsupported
from tests.contract.family_models import YES, adapted, answers, build, longest, near, reads_texts
from tests.transfer.classifiers import images, texts

Options = Mapping[str, Any]
KINDS = ("full_attention", "sliding_attention")
EVERY_KIND = ("class", "entities", "vector")
PADDED = ((9, 1, 6), 12)


def _turning(kind: str, **more: Any) -> Options:
    """Rotary positions of a kind in all layers."""
    settings = {"rope_type": kind, "rope_theta": 100.0, **more}
    return {"rope_parameters": {layers: dict(settings) for layers in KINDS}}


def _layers(*short: str) -> Options:
    return {"layer_types": [f"{kind}_attention" for kind in short]}


DECODER: Options = {"is_decoder": True}
# by the words of the page
BERTS: Mapping[str, Options] = {
    "hidden_act gelu_new": {"hidden_act": "gelu_new"},
    "layer_norm_eps 0.1": {"layer_norm_eps": 0.1},
    "type_vocab_size 1": {"type_vocab_size": 1},
}
VISION: Mapping[str, Options] = {
    "qkv_bias False": {"qkv_bias": False},
    "hidden_act relu": {"hidden_act": "relu"},
    "layer_norm_eps 0.1": {"layer_norm_eps": 0.1},
    "num_channels 1": {"num_channels": 1},
}
OPTIONS: Mapping[str, Mapping[str, Options]] = {
    "bert": BERTS,
    "roberta": BERTS,
    "xlm-roberta": BERTS,
    "camembert": BERTS,
    "electra": {**BERTS, "embedding_size 8": {"embedding_size": 8}},
    "distilbert": {
        "sinusoidal_pos_embds True": {"sinusoidal_pos_embds": True},
        "activation relu": {"activation": "relu"},
    },
    "mpnet": {
        "relative_attention_num_buckets 16": {"relative_attention_num_buckets": 16},
        "relative_attention_num_buckets 64": {"relative_attention_num_buckets": 64},
        "hidden_act relu": {"hidden_act": "relu"},
    },
    "deberta-v2": {
        "share_att_key False": {"share_att_key": False},
        "pos_att_type c2p": {"pos_att_type": ["c2p"]},
        "pos_att_type p2c": {"pos_att_type": ["p2c"]},
        "pos_att_type none": {"pos_att_type": []},
        "pos_att_type c2p, share_att_key False": {
            "pos_att_type": ["c2p"],
            "share_att_key": False,
        },
        "pos_att_type p2p": {"pos_att_type": ["p2c", "p2p"]},
        "position_buckets -1": {"position_buckets": -1},
        "max_relative_positions 5": {"position_buckets": -1, "max_relative_positions": 5},
        "relative_attention False": {"relative_attention": False, "position_biased_input": True},
        "norm_rel_ebd none": {"norm_rel_ebd": "none"},
        "position_biased_input True": {"position_biased_input": True},
        "type_vocab_size 2": {"type_vocab_size": 2},
        "embedding_size 8": {"embedding_size": 8},
        "conv_kernel_size 3": {"conv_kernel_size": 3},
        "attention_head_size 8": {"attention_head_size": 8},
        "pooler_hidden_act tanh": {"pooler_hidden_act": "tanh"},
        "pooler_hidden_act gelu_new": {"pooler_hidden_act": "gelu_new"},
        "pooler_hidden_size 8": {"pooler_hidden_size": 8},
    },
    "modernbert": {
        "attention_bias True": {"attention_bias": True},
        "mlp_bias True": {"mlp_bias": True},
        "norm_bias True": {"norm_bias": True},
        "classifier_bias True": {"classifier_bias": True},
        "classifier_pooling mean": {"classifier_pooling": "mean"},
        "rope_type linear": _turning("linear", factor=2.0),
        "rope_type yarn": _turning("yarn", factor=2.5, original_max_position_embeddings=8),
        "rope_type llama3": _turning(
            "llama3",
            factor=4.0,
            original_max_position_embeddings=8,
            low_freq_factor=1.0,
            high_freq_factor=4.0,
        ),
        "rope_type dynamic": _turning("dynamic", factor=2.0),
        "rope_type longrope": _turning(
            "longrope",
            factor=2.5,
            short_factor=[1.0] * 2,
            long_factor=[2.0] * 2,
            original_max_position_embeddings=8,
        ),
        "layer_types all sliding_attention": _layers(*["sliding"] * 4),
        "layer_types all full_attention": _layers(*["full"] * 4),
        "layer_types sliding_attention first": _layers("sliding", "full", "sliding", "full"),
        "local_attention 0": {"local_attention": 0},
        "local_attention 2": {"local_attention": 2},
        "local_attention 7": {"local_attention": 7},
        "local_attention 128": {"local_attention": 128},
        "global_attn_every_n_layers 2": {"global_attn_every_n_layers": 2},
        "classifier_activation silu": {"classifier_activation": "silu"},
        "classifier_activation gelu_new": {"classifier_activation": "gelu_new"},
        "hidden_activation silu": {"hidden_activation": "silu"},
        "hidden_activation gelu_pytorch_tanh": {"hidden_activation": "gelu_pytorch_tanh"},
        "head_dim 8": {"head_dim": 8},
    },
    "vit": VISION,
    "deit": VISION,
    "clip": {"hidden_act gelu": {"hidden_act": "gelu"}, "num_channels 1": {"num_channels": 1}},
}


def run_option(family: str, words: str) -> str:
    """What an option's models do: "yes", or the one line of the refusal, the same for all answers.

    Served models answer as transformers does, at one token, with pads and at the longest input, and
    come back as they were saved.
    """
    options = OPTIONS[family][words]
    kinds = EVERY_KIND if reads_texts(family) else EVERY_KIND[:1]
    models = [build(family, kind, **options) for kind in kinds]
    cells = {_cell(family, model, options) for model in models}
    (cell,) = cells
    assert "\n" not in cell
    return cell


def _cell(family: str, model: Any, options: Options) -> str:
    try:
        adaptive = adapted(model)
    except Unsupported as error:
        return str(error)
    for inputs in _batches(family, options):
        near(answers(adaptive, inputs), answers(model, inputs))
    with tempfile.TemporaryDirectory() as folder:
        adaptive.save_pretrained(folder)
        near(answers(sparing.load(folder), inputs), answers(model, inputs))
    return YES


def _batches(family: str, options: Options) -> Sequence[Any]:
    if reads_texts(family):
        return [texts([1]), texts([*PADDED[0]], longest=PADDED[1]), texts([longest(family), 3])]
    channels = options.get("num_channels", 3)
    return [{"pixel_values": images(3)["pixel_values"][:, :channels]}]
