"""Tiny random models of several families, and a folder with a tokenizer, for advice."""

from __future__ import annotations

import torch
import transformers

SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
}
TEXT = {**SIZES, "vocab_size": 50, "max_position_embeddings": 64}
BART = {
    "vocab_size": 50,
    "d_model": 16,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
    "max_position_embeddings": 64,
}
GPT2 = {"vocab_size": 50, "n_positions": 64, "n_embd": 16, "n_layer": 2, "n_head": 2}
ENDS = {"bos_token_id": 1, "eos_token_id": 2}
DISTANCES = {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "position_buckets": 8}
KINDS = {
    "bert": ("BertModel", "BertConfig", TEXT),
    "vit": ("ViTModel", "ViTConfig", {**SIZES, "image_size": 16, "patch_size": 4}),
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", {**GPT2, **ENDS}),
    "llama": ("LlamaForCausalLM", "LlamaConfig", {**TEXT, "num_key_value_heads": 1}),
    "bart": ("BartModel", "BartConfig", BART),
    "mpnet": ("MPNetModel", "MPNetConfig", {**TEXT, "max_position_embeddings": 66}),
    "deberta": ("DebertaV2Model", "DebertaV2Config", {**TEXT, **DISTANCES}),
    "t5": (
        "T5EncoderModel",
        "T5Config",
        {"d_model": 16, "num_layers": 2, "num_heads": 2, "d_kv": 8, "d_ff": 24, "vocab_size": 50},
    ),
}
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [*SPECIAL, "the", "film", "was", "good", "bad", "and", "long"]


def build(kind, **changes):
    """A model in evaluation mode; the same weights every time."""
    model, config, sizes = KINDS[kind]
    torch.manual_seed(0)
    return getattr(transformers, model)(
        getattr(transformers, config)(**{**sizes, **changes})
    ).eval()


def save_with_tokenizer(folder, **changes):
    """A tiny BERT in a folder, with a tokenizer of a few words."""
    build("bert", **changes).save_pretrained(folder)
    vocabulary = {word: number for number, word in enumerate(WORDS)}
    transformers.BertTokenizerFast(vocab=vocabulary).save_pretrained(folder)
    return folder
