"""Tiny classifiers and their exported forms: two with equal answers, one that answers otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import BertConfig, BertForSequenceClassification

from sparing.export.dense import TextEncoder
from sparing.export.onnx import export_onnx
from sparing.tasks.shared.text import fast_tokenizer
from tests.tasks.tokenizers import SIZES, save_tokenizer

NAMES = ("negative", "neutral", "positive")


def rows(count: int) -> list[str]:
    """Different short texts."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    return [
        f"{letters[n % 26]}{letters[n // 26 % 26]} {letters[n * 7 % 26] * (1 + n % 4)} {n}"
        for n in range(count)
    ]


def save_model(
    folder: Path, names: tuple[str, ...] = NAMES, *, noise: float = 0.0, **changes: Any
) -> Path:
    """A BERT of fixed random weights with a tokenizer; ``noise`` is added to its last layer."""
    save_tokenizer(folder)
    torch.manual_seed(0)
    vocabulary = len(fast_tokenizer(str(folder)))
    config = BertConfig(**{**SIZES, **changes}, vocab_size=vocabulary, num_labels=len(names))
    config.id2label = dict(enumerate(names))
    config.label2id = {name: number for number, name in enumerate(names)}
    model = BertForSequenceClassification(config).eval()
    with torch.no_grad():
        centre_logits(model)
        model.classifier.weight += noise * torch.randn(model.classifier.weight.shape)
    model.save_pretrained(folder)
    return folder


def centre_logits(model: BertForSequenceClassification) -> None:
    """Shift the biases so that every class is chosen for some texts."""
    ids = torch.randint(5, model.config.vocab_size, (64, 12))
    model.classifier.bias -= model(ids).logits.mean(0)


def export(folder: Path, target: Path) -> Path:
    """The model of a folder as an ONNX file with free sizes."""
    model = BertForSequenceClassification.from_pretrained(folder).eval()
    ids = torch.tensor([[2, 7, 8, 9, 3], [2, 7, 3, 0, 0]])
    keep = (ids != 0).long()
    example = {"input_ids": ids, "attention_mask": keep, "token_type_ids": torch.zeros_like(ids)}
    return export_onnx(TextEncoder(model).eval(), example, target)
