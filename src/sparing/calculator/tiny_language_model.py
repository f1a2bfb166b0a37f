"""A small causal language model with random weights that reads sums character by character."""

from __future__ import annotations

from tokenizers import Regex, Tokenizer, decoders
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from sparing.models.shared.quiet import quiet
from sparing.models.shared.shape import seeded

SIGNS = "0123456789+-.= "
END, PAD, UNKNOWN = "<end>", "<pad>", "<unknown>"


def tiny_language_model(
    *, width: int = 64, layers: int = 3, heads: int = 4, inner: int = 128, seed: int = 0
) -> tuple[LlamaForCausalLM, PreTrainedTokenizerFast]:
    """transformers' Llama of these sizes, and a tokenizer with a token for every character.

    It replaces a pretrained model where none is available: nothing in it was learned.
    """
    words = {word: number for number, word in enumerate((PAD, END, UNKNOWN, *SIGNS))}
    characters = Tokenizer(WordLevel(words, unk_token=UNKNOWN))
    characters.pre_tokenizer = Split(Regex("."), "isolated")
    characters.decoder = decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=characters, eos_token=END, pad_token=PAD, unk_token=UNKNOWN
    )
    config = LlamaConfig(
        vocab_size=len(words),
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=inner,
        max_position_embeddings=128,
        initializer_range=width**-0.5,
        tie_word_embeddings=True,
        pad_token_id=words[PAD],
        eos_token_id=words[END],
        bos_token_id=None,
    )
    with quiet(), seeded(seed):
        model = LlamaForCausalLM(config)
    return model, tokenizer
