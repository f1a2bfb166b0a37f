"""Folders of tiny models of the families of texts, each with a tokenizer of a few words."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import BertTokenizerFast

from tests.transfer.classifiers import dense

SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 50,
    "num_labels": 2,
    "embedding_size": 32,
}
RENAMED = {"dim": 32, "n_layers": 3, "n_heads": 4, "hidden_dim": 64}


def save_family(folder: Path, family: str, words: Sequence[str]) -> Path:
    """A model of random weights in float32; ``words`` begin with the five special ones."""
    sizes = {**SIZES, **(RENAMED if family == "distilbert" else {})}
    model = dense(family, dtype=torch.float32, **sizes, vocab_size=len(words))
    model.save_pretrained(folder)
    vocabulary = {word: number for number, word in enumerate(words)}
    BertTokenizerFast(vocab=vocabulary, model_max_length=48).save_pretrained(folder)
    return folder
