"""Which model, which verb: a table made by giving a tiny model of every kind to every verb."""

from __future__ import annotations

import copy
import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import transformers
from transformers import BertConfig, BertTokenizerFast, ViTConfig

import sparing
from page_parts import DASH, table
from sparing.advise.model import open_subject
from sparing.agree.model import open_text_model
from sparing.core.errors import SparingError
from sparing.experiment.inputs.fit import refuse_others, require_head
from sparing.export.dense import dense_segment
from sparing.models.shared.quiet import quiet
from sparing.transfer.adapting.adapt import adapt
from sparing.transfer.families.known import find_blocks

INTRO = """\
# Which model, which verb

Every cell was made by giving a tiny model of that kind to the verb, as BERT or ViT.
Which families each verb takes: its [guide](../how-to/index.md).

- *texts*: `slim` needs `--texts`: no task has such answers. Others take a `--task` too.
- *new head*: the model is fine-tuned as a classifier first; its own head is not used.
- The column of `train` is that of `evaluate` and `compare` too: they take the same models.
- `evaluate` also scores pairs of texts by the cosine of their vectors.
- `swap` and `adapt` are functions of Python.
"""
SIZES: dict[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
}
WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "text")
POOLING = {"word_embedding_dimension": 16, "pooling_mode_mean_tokens": True}
MODULES = {"Transformer": "", "Pooling": "1_Pooling"}


@dataclass(frozen=True)
class Given:
    """One kind of answer, with a model that gives it and the folder where it is saved."""

    model: Any
    folder: Path


@dataclass(frozen=True)
class Kind:
    """What a model answers with: its class in transformers, and what its configuration adds."""

    answer: str
    head: str
    changes: dict[str, Any]
    images: bool = False
    embeds: bool = False


KINDS = (
    Kind("one class of a text", "ForSequenceClassification", {}),
    Kind("one class of an image", "ForImageClassification", {}, images=True),
    Kind(
        "several labels",
        "ForSequenceClassification",
        {"problem_type": "multi_label_classification"},
    ),
    Kind("a number", "ForSequenceClassification", {"num_labels": 1}),
    Kind("entities", "ForTokenClassification", {}),
    Kind("an answer in a passage", "ForQuestionAnswering", {}),
    Kind("a vector", "Model", {}, embeds=True),
)


def model_pages() -> dict[str, str]:
    """The page, by its path below ``reference``."""
    rows = []
    with quiet(), tempfile.TemporaryDirectory() as scratch:
        for number, kind in enumerate(KINDS):
            given = _given(kind, Path(scratch) / str(number))
            name = type(given.model).__name__
            rows.append([kind.answer, f"`{name}`", *(check(given) for check in VERBS.values())])
    heads = ["Answer", "Such as", *(f"`{verb}`" for verb in VERBS)]
    return {"models.md": f"{INTRO}\n{table(heads, rows)}\n"}


def _given(kind: Kind, folder: Path) -> Given:
    """A tiny model of a kind, saved with its tokenizer."""
    if kind.images:
        config: Any = ViTConfig(image_size=8, patch_size=4, **SIZES, **kind.changes)
        model = transformers.ViTForImageClassification(config)
        model.save_pretrained(folder)
        return Given(model.eval(), folder)
    config = BertConfig(vocab_size=len(WORDS), **SIZES, **kind.changes)
    model = getattr(transformers, f"Bert{kind.head}")(config).eval()
    model.save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    BertTokenizerFast(vocab=str(folder / "vocab.txt")).save_pretrained(folder)
    if kind.embeds:
        _save_modules(folder)
    return Given(model, folder)


def _save_modules(folder: Path) -> None:
    """What sentence-transformers writes beside an encoder."""
    modules = [
        {"idx": n, "name": str(n), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for n, (kind, path) in enumerate(MODULES.items())
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / MODULES["Pooling"]).mkdir()
    (folder / MODULES["Pooling"] / "config.json").write_text(json.dumps(POOLING))


def _takes(call: Callable[[], object]) -> bool:
    try:
        call()
    except SparingError:
        return False
    return True


def _cell(call: Callable[[Given], object], words: str = "yes") -> Callable[[Given], str]:
    return lambda given: words if _takes(lambda: call(given)) else DASH


def _slim(given: Given) -> str:
    folder = str(given.folder)
    if _takes(lambda: refuse_others(folder, task=True)):
        return "yes"
    return "texts" if _takes(lambda: refuse_others(folder, texts=True)) else DASH


def _train(given: Given) -> str:
    if not _takes(lambda: require_head(given.model, str(given.folder))):
        return DASH
    return "new head" if type(given.model).__name__.endswith("Model") else "yes"


VERBS: dict[str, Callable[[Given], str]] = {
    "slim": _slim,
    "agree": _cell(lambda given: open_text_model(str(given.folder))),
    "export": _cell(lambda given: dense_segment(given.model)),
    "advise": _cell(lambda given: open_subject(str(given.folder))),
    "train": _train,
    "prune": _cell(lambda given: find_blocks(given.model)),
    "swap": _cell(lambda given: sparing.swap(copy.deepcopy(given.model), "linear")),
    "adapt": _cell(lambda given: adapt(given.model)),
}
