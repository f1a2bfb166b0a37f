"""A small tokenizer of BERT's kind, saved as a pretrained one."""

from __future__ import annotations

from pathlib import Path

from transformers import BertTokenizer

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"


def save_tokenizer(place: Path) -> Path:
    """Characters and their continuations, lower case; gives the folder."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = [*special, *LETTERS, *(f"##{letter}" for letter in LETTERS), '"', "?", "."]
    place.mkdir(parents=True)
    BertTokenizer({word: number for number, word in enumerate(words)}).save_pretrained(place)
    return place
