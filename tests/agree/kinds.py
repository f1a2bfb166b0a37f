"""Tiny models of every kind of answer, as folders and as ONNX files that others would write."""

from __future__ import annotations

import json
import traceback
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers import (
    BertConfig,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertModel,
)

from sparing.tasks.shared.text import fast_tokenizer
from tests.tasks.tokenizers import SIZES, save_tokenizer

ENTITIES = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
LABELS = ("insult", "spam", "threat")
MODULES = ("Transformer", "Pooling", "Normalize")
NAMES = ("input_ids", "attention_mask", "token_type_ids")


def save(folder: Path, kind: str, *, noise: float = 0.0, **changes: Any) -> Path:
    """A BERT of fixed random weights for a kind of answer; ``noise`` is added to its last layer."""
    save_tokenizer(folder)
    torch.manual_seed(0)
    config = BertConfig(**{**SIZES, **changes}, vocab_size=len(fast_tokenizer(str(folder))))
    if kind == "number":
        config.num_labels = 1
    if kind == "labels":
        config.problem_type = "multi_label_classification"
        config.id2label = dict(enumerate(LABELS))
        config.label2id = {name: number for number, name in enumerate(LABELS)}
    if kind == "entities":
        config.id2label = dict(enumerate(ENTITIES))
        config.label2id = {name: number for number, name in enumerate(ENTITIES)}
    model = {
        "number": BertForSequenceClassification,
        "labels": BertForSequenceClassification,
        "entities": BertForTokenClassification,
        "span": BertForQuestionAnswering,
        "vector": BertModel,
    }[kind](config).eval()
    with torch.no_grad():
        last = [weight for weight in model.parameters() if weight.ndim == 2][-1]
        if kind == "vector":
            last = model.encoder.layer[-1].output.dense.weight
        last += noise * torch.randn(last.shape)
    model.save_pretrained(folder)
    if kind == "vector":
        save_modules(folder)
    return folder


def save_modules(folder: Path, **settings: Any) -> None:
    """What sentence-transformers writes beside an encoder: mean pooling and vectors of length 1."""
    paths = ("", "1_Pooling", "2_Normalize")
    modules = [
        {"idx": n, "name": str(n), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for n, (kind, path) in enumerate(zip(MODULES, paths, strict=True))
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 24}))
    (folder / "config_sentence_transformers.json").write_text(json.dumps(settings))
    (folder / "1_Pooling").mkdir()
    pooling = {"word_embedding_dimension": SIZES["hidden_size"], "pooling_mode_mean_tokens": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))


class Outputs(nn.Module):
    """A model as a function of three tensors, which gives some of its outputs."""

    def __init__(self, model: nn.Module, names: tuple[str, ...]) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(
        self, input_ids: Any, attention_mask: Any = None, token_type_ids: Any = None
    ) -> Any:
        """The named outputs."""
        made = self.model(
            input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids
        )
        return tuple(getattr(made, name) for name in self.names)


def export(model: nn.Module, target: Path, *names: str, takes: tuple[str, ...] = NAMES) -> Path:
    """An ONNX file with these outputs, as another program would write it."""
    ids = torch.tensor([[2, 7, 8, 9, 3], [2, 7, 3, 0, 0]])
    example = (ids, (ids != 0).long(), torch.zeros_like(ids))
    axes = {name: {0: "batch", 1: "tokens"} for name in (*takes, *names)}
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        torch.onnx.export(
            Outputs(model, names).eval(),
            example[: len(takes)],
            str(target),
            input_names=list(takes),
            output_names=list(names),
            dynamic_axes=axes,
            dynamo=False,
        )
    except IndexError as error:
        if traceback.extract_tb(error.__traceback__)[-1].name != "sdpa_mask":
            raise
        pytest.skip("TorchScript cannot trace the masks of this transformers")
    return target
