"""Tiny models of every family in every kind of answer, and slow obvious forms of their parts."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from sentence_transformers.sentence_transformer import modules
from torch import Tensor, nn

from sparing.transfer.adapting.adapt import adapt
from sparing.transfer.embedding.adaptive import adapt_embedder
from sparing.transfer.embedding.dense import SentenceEncoder
from sparing.transfer.families.known import FAMILIES as KNOWN
from sparing.transfer.families.known import find_blocks
from tests.transfer.classifiers import IMAGES, LAYERS, WIDTH, dense, images, texts

YES, NONE = "yes", "-"
LONGEST = {"roberta": 19, "xlm-roberta": 19, "camembert": 19}
# the head of the class, and what the configuration adds
ANSWERS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "class": ("", {}),
    "labels": ("", {}),
    "number": ("", {"num_labels": 1}),
    "entities": ("ForTokenClassification", {"num_labels": 5}),
    "span": ("ForQuestionAnswering", {"num_labels": 2}),
    "vector": ("Model", {}),
}
OF_ROWS = ("class", "labels", "number")
Inputs = Mapping[str, Tensor]


@dataclass(frozen=True)
class Pair:
    """A dense model and its adaptive form; ``answer`` is the kind of its answers."""

    answer: str
    dense: Any
    adaptive: Any


def reads_texts(family: str) -> bool:
    """Whether a family reads texts."""
    return family not in IMAGES


def longest(family: str) -> int:
    """The most tokens of a tiny model's input."""
    return LONGEST.get(family, 20)


def build(family: str, answer: str, **changes: Any) -> Any:
    """A dense model of random weights in float64."""
    head, added = ANSWERS[answer]
    model = dense(family, head=head, **{**added, **changes})
    if answer == "labels":
        model.config.problem_type = "multi_label_classification"
    if answer != "vector":
        return model
    return SentenceEncoder(model, [modules.Pooling(WIDTH, "mean"), modules.Normalize()]).eval()


def adapted(model: Any, exits: Sequence[int] | None = None) -> Any:
    """The adaptive form of a dense model of any answer."""
    whole = isinstance(model, SentenceEncoder)
    return adapt_embedder(model, exits) if whole else adapt(model, exits)


@lru_cache(maxsize=8)
def _pairs(family: str) -> tuple[tuple[str, Any], ...]:
    answers = ANSWERS if reads_texts(family) else OF_ROWS
    return tuple((answer, build(family, answer)) for answer in answers)


def pairs(family: str) -> Iterator[Pair]:
    """A model of every kind of answer that the family gives, with every layer as an exit."""
    for answer, model in _pairs(family):
        yield Pair(answer, copy.deepcopy(model), adapted(model, range(1, LAYERS + 1)))


def pair(family: str, answer: str = "class") -> Pair:
    """The model of one kind of answer."""
    return next(one for one in pairs(family) if one.answer == answer)


def given(family: str, lengths: Sequence[int] = (9, 1, 7), pads_to: int = 0) -> Inputs:
    """A batch of inputs, padded on the right."""
    return texts(list(lengths), longest=pads_to) if reads_texts(family) else images(len(lengths))


@torch.no_grad()
def answers(model: Any, inputs: Inputs) -> Tensor:
    """What a model answers, one row an input, or one row a real token."""
    made = model(**inputs)
    if "start_logits" in made:
        rows = torch.stack((made.start_logits, made.end_logits), -1)
    else:
        rows = made.logits
    return rows[inputs["attention_mask"].bool()] if rows.ndim == 3 else rows


def near(ours: Tensor, theirs: Tensor, within: float = 1e-10) -> None:
    """Raise where two results differ."""
    torch.testing.assert_close(ours, theirs, rtol=within, atol=within)


def inner(model: Any) -> Any:
    """The model of transformers."""
    return model.encoder if isinstance(model, SentenceEncoder) else model


def zeroed(model: Any, heads: Sequence[int], neurons: Sequence[int]) -> Any:
    """A copy in which nothing reads a layer's heads and neurons after the first ones."""
    twin = copy.deepcopy(model)
    with torch.no_grad():
        for block, count, few in zip(find_blocks(inner(twin)), heads, neurons, strict=False):
            block.output.weight[:, count * block.dim :] = 0
            block.fall.weight[:, few:] = 0
    return twin


def without(model: Any, heads: Mapping[int, Sequence[int]]) -> Any:
    """A copy in which nothing reads the named heads of layers."""
    twin = copy.deepcopy(model)
    blocks = find_blocks(inner(twin))
    with torch.no_grad():
        for index, numbers in heads.items():
            for head in numbers:
                dim = blocks[index].dim
                blocks[index].output.weight[:, head * dim : (head + 1) * dim] = 0
    return twin


def cut(family: str, model: Any, layers: int) -> Any:
    """A copy that ends after so many layers."""
    twin = copy.deepcopy(model)
    base = KNOWN[family].base(inner(twin))
    present = dict(base.named_modules())
    name = next(name for name in KNOWN[family].layers if name in present)
    stack: Any = present[name]
    del stack[layers:]
    # some loop over so many layers as the configuration says
    config = inner(twin).config
    getattr(config, "vision_config", config).num_hidden_layers = layers
    return twin


def replaced(model: nn.Module, path: str, part: nn.Module) -> None:
    """Put another part at a path."""
    home, _, name = path.rpartition(".")
    setattr(model.get_submodule(home), name, part)
