"""A small tokenizer of BERT's kind, saved as a pretrained one."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import BertConfig, BertForSequenceClassification, BertTokenizer

# A tiny BERT; its large random weights give each input an answer of its own.
SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 32,
    "initializer_range": 0.5,
}
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"


def save_tokenizer(folder: Path) -> Path:
    """Characters and their continuations, lower case; gives the folder."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = [*special, *LETTERS, *(f"##{letter}" for letter in LETTERS), '"', "?", "."]
    folder.mkdir(parents=True)
    BertTokenizer({word: number for number, word in enumerate(words)}).save_pretrained(folder)
    return folder


def save_bert(folder: Path, words: int) -> None:
    """A tiny BERT of random weights, two classes and so many words, as one would download it."""
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=words,
        hidden_size=16,
        num_hidden_layers=3,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=48,
        num_labels=2,
    )
    BertForSequenceClassification(config).save_pretrained(folder)
