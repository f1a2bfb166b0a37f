"""Random tiny models of every family that the tests swap, in float64."""

from __future__ import annotations

import copy
from contextlib import contextmanager

import pytest
import torch
import transformers

from sparing.transfer.layers import forward_of

SIZES = {
    "vocab_size": 50,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 40,
    "max_position_embeddings": 40,
}
IMAGES = {name: SIZES[name] for name in list(SIZES)[1:5]} | {"image_size": 16, "patch_size": 4}
SPECIAL = dict.fromkeys(("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"), 1)
GPT2_SIZES = {"vocab_size": 50, "n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 40}

_FAMILIES = {
    "bert": ("BertForMaskedLM", "BertConfig", SIZES),
    "roberta": ("RobertaModel", "RobertaConfig", SIZES),
    "distilbert": (
        "DistilBertModel",
        "DistilBertConfig",
        {
            "vocab_size": 50,
            "dim": 32,
            "n_layers": 3,
            "n_heads": 4,
            "hidden_dim": 40,
            "max_position_embeddings": 40,
        },
    ),
    "electra": ("ElectraModel", "ElectraConfig", {**SIZES, "embedding_size": 16}),
    "modernbert": (
        "ModernBertModel",
        "ModernBertConfig",
        {
            **SIZES,
            **SPECIAL,
            "pad_token_id": 0,
            "local_attention": 4,
            "global_attn_every_n_layers": 2,
        },
    ),
    "mpnet": ("MPNetModel", "MPNetConfig", {**SIZES, "relative_attention_num_buckets": 32}),
    "deberta-v2": (
        "DebertaV2Model",
        "DebertaV2Config",
        {
            **SIZES,
            "relative_attention": True,
            "position_buckets": 4,
            "pos_att_type": ["p2c", "c2p"],
            "share_att_key": True,
            "norm_rel_ebd": "layer_norm",
            "position_biased_input": False,
        },
    ),
    "vit": ("ViTForImageClassification", "ViTConfig", IMAGES),
    "deit": ("DeiTModel", "DeiTConfig", IMAGES),
    "gpt2": (
        "GPT2LMHeadModel",
        "GPT2Config",
        {**GPT2_SIZES, "bos_token_id": 1, "eos_token_id": None},
    ),
    "llama": (
        "LlamaForCausalLM",
        "LlamaConfig",
        {**SIZES, "num_key_value_heads": 2, "eos_token_id": None},
    ),
    "bart": (
        "BartForConditionalGeneration",
        "BartConfig",
        {
            "vocab_size": 50,
            "d_model": 32,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 40,
            "decoder_ffn_dim": 40,
            "max_position_embeddings": 40,
            **dict.fromkeys(("bos_token_id", "eos_token_id", "decoder_start_token_id"), 2),
            "forced_eos_token_id": None,
        },
    ),
    "albert": ("AlbertModel", "AlbertConfig", {**SIZES, "embedding_size": 16}),
}
# They compute attention in modules of their own, which transformers does not dispatch.
OUTSIDE = ("mpnet", "deberta-v2")
FAMILIES = [name for name in _FAMILIES if name != "albert"]
DECODERS = ["gpt2", "llama"]


def configuration(family, **changes):
    _, config_class, sizes = _FAMILIES[family]
    return getattr(transformers, config_class)(**{**sizes, **changes})


def build(family, attention="sdpa", dtype=torch.float64, config=None, **changes):
    """A random model in evaluation mode; ``own`` is transformers' implementation."""
    torch.manual_seed(0)
    kind = getattr(transformers, _FAMILIES[family][0])
    config = config or configuration(family, **changes)
    attention = "eager" if family in OUTSIDE else attention
    model = kind._from_config(config, attn_implementation=attention, dtype=dtype).eval()
    for name, parameter in model.named_parameters():
        # the usual 0.02 makes attention almost uniform, and masks almost invisible
        if parameter.ndim == 2 and "embed" not in name:
            torch.nn.init.normal_(parameter, std=0.3)
        elif name.endswith("bias"):
            torch.nn.init.normal_(parameter, std=0.1)
    return model


def inputs(family, padding="right", batch=3, tokens=9):
    """A batch of the family's inputs; ``padding`` is right, both or none."""
    torch.manual_seed(1)
    if family in ("vit", "deit"):
        return {"pixel_values": torch.randn(batch, 3, 16, 16, dtype=torch.float64)}
    given = {"input_ids": torch.randint(3, 50, (batch, tokens))}
    if padding != "none":
        keep = torch.ones(batch, tokens, dtype=torch.long)
        keep[1, 7:] = 0
        if padding == "both":
            keep[2, :2] = 0
        given["attention_mask"] = keep
    if family == "bart":
        given["decoder_input_ids"] = torch.randint(3, 50, (batch, 5))
    return given


@torch.no_grad()
def output(model, given):
    """The model's main output, at real tokens only."""
    result = model(**given)
    value = result["logits"] if "logits" in result else result["last_hidden_state"]
    keep = given.get("attention_mask")
    if keep is None or keep.shape != value.shape[:2]:
        return value
    return value[keep.bool()]


@contextmanager
def without_mechanisms(model):
    """The swapped model with every layer back to its own attention, dispatched by sparing."""
    layers = [module for module in model.modules() if "sparing" in module._modules]
    mechanisms = [layer._modules.pop("sparing") for layer in layers]
    yield
    for layer, mechanism in zip(layers, mechanisms, strict=True):
        layer._modules["sparing"] = mechanism


def require_registry(model):
    """Skip the test where this transformers computes the model's attention outside its registry."""
    if not any(forward_of(type(module)) for module in model.modules()):
        pytest.skip(f"{type(model).__name__} of this transformers is not in its attention registry")


def twin(model):
    """An equal model, not swapped."""
    return copy.deepcopy(model)
