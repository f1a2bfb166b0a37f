"""A task of your texts for one model: its tokenizer, its limit of tokens and its classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sparing.core.errors import DataError, UsageError, listed, quoted
from sparing.core.paths import expanded
from sparing.foreign.kinds import ByToken, answer_kind, by_token, stated_class
from sparing.foreign.pretrained import open_config
from sparing.foreign.sentences import Sentences, sentences_in
from sparing.tasks._columns import WHOLE, in_order
from sparing.tasks.shared.questions import each_window, windows_note
from sparing.tasks.shared.table import Row
from sparing.tasks.shared.task import UNLABELLED, Examples, Task
from sparing.tasks.shared.text import (
    encoded_splits,
    fast_tokenizer,
    pad_of,
    pretrained_encoder,
    require_fast,
)
from sparing.tasks.texts.parts import Parts

SPLITS = {"train": "train", "choose": "validation", "calibrate": "calibrate", "test": "test"}
UNKNOWN_SHARE = 0.2  # above it the texts are probably in another language
CLASS: Mapping[str, Any] = {"metrics": ("accuracy", "matthews")}
VECTOR: Mapping[str, Any] = {"metric": "cosine", "answer": "vector"}
# Of these answers labels are not read: the dense model's take their place.
BY_KIND: Mapping[str, Mapping[str, Any]] = {
    "class": CLASS,
    "labels": {"metric": "probability_closeness", "answer": "labels"},
    "number": {"metric": "correlation", "answer": "number"},
    "entities": {"metric": "same_answer", "answer": "entities"},
    "span": {"metric": "same_answer", "answer": "span"},
}
ENDS = ("start", "end")
UNLIMITED = 10**9  # tokenizers without a limit state a huge one
DEFAULT_TOKENS = 512
# Families with positions that begin after the pad's.
AFTER_PAD = ("roberta", "camembert", "mpnet", "longformer", "data2vec-text", "xmod", "ibert")


def task_of_texts(
    texts: Parts, model: str | Path | tuple[Any, Any], *, max_tokens: int | None = None
) -> Task:
    """The parts as a task for a model; rows without a label have ``UNLABELLED``.

    ``model`` is a folder or hub name, or a model and its tokenizer. The part to choose by is the
    split ``validation``; ``calibrate`` is one of ``more_tests``. Labels are names or numbers of the
    model's classes; others are numbered in sorted order if its classes have no names. Labels are
    not used for other answers than one class. Texts are cut to ``max_tokens`` (unless given,
    the model's limit); of questions and passages windows are made. Notes count those, and tokens
    that are unknown. Raises ``UsageError`` for a
    model without tokens, a tokenizer that is missing or has more, and labels that are not its
    classes, and ``DataError`` for pairs, which have no vector.
    """
    config, tokenizer = _opened(model)
    inside = _sentences(model)
    limits = (max_tokens or token_limit_of(config, tokenizer), inside.limit if inside else None)
    limit = min(filter(None, limits))
    outputs = class_names(config) if inside is None else _numbers_in(inside, config)
    facts, rows, notes = _rows_of(texts, config, inside, outputs)
    splits, cut = _encoded(rows, tokenizer, limit, by_token(stated_class(config)))
    parts = splits["train"], splits["validation"], splits["test"]
    ids = [row for part in splits.values() for row in part.inputs]
    require_vocabulary(ids, vocabulary_of(config), tokenizer)
    return Task(
        Path(texts.train.source).name.partition(".")[0] or "texts",
        "tokens",
        *parts,
        labels=outputs,
        tokens=max(size for part in splits.values() for sizes in part.rows for size in sizes),
        licence="your own",
        source=texts.train.source,
        **facts,
        vocabulary=len(tokenizer),
        pad_id=pad_of(tokenizer),
        tokenizer=tokenizer,
        more_tests={"calibrate": splits["calibrate"]},
        unlabelled=True,
        notes=(*texts.notes, *notes, *cut, *unknown_note(ids, tokenizer)),
    )


def _encoded(
    rows: Mapping[str, Sequence[Row]], tokenizer: Any, limit: int, answer: ByToken | None
) -> tuple[dict[str, Examples], list[str]]:
    """The examples of each split, and notes on what was cut; windows to train on are examples."""
    encoder = pretrained_encoder(tokenizer, limit, windows=answer == "span", words=bool(answer))
    splits, notes = encoded_splits(rows, encoder, "class", limit)
    for name, part in splits.items():
        notes += windows_note(name, part, "rows")
    if answer == "span":
        splits["train"] = each_window(splits["train"])
    return splits, notes


def class_names(config: Any) -> tuple[str, ...]:
    """The names of a classifier's classes, in order; raises ``UsageError`` without a class."""
    named = getattr(config, "id2label", None) or {}
    if by_token(stated_class(config)) == "span":
        return ENDS
    if not named:
        raise UsageError("the model has no classes: its configuration has no id2label")
    return tuple(str(named[number]) for number in sorted(named, key=int))


def token_limit_of(config: Any, tokenizer: Any) -> int:
    """The most tokens that a model reads, as far as its configuration and tokenizer say."""
    limits = []
    positions = getattr(config, "max_position_embeddings", None)
    if isinstance(positions, int) and positions > 0:
        kind = getattr(config, "base_model_type", "") or getattr(config, "model_type", "")
        after_pad = any(family in kind for family in AFTER_PAD)
        first = int(getattr(config, "pad_token_id", None) or 0) + 1 if after_pad else 0
        limits.append(positions - first)
    stated = getattr(tokenizer, "model_max_length", UNLIMITED)
    if stated < UNLIMITED:
        limits.append(int(stated))
    return min(limits, default=DEFAULT_TOKENS)


def vocabulary_of(config: Any) -> int:
    """How many tokens a model knows; raises ``UsageError`` for one that reads none."""
    size = getattr(config, "vocab_size", None)
    if not isinstance(size, int):
        raise UsageError("the model reads no tokens: its configuration has no vocab_size")
    return size


def require_vocabulary(ids: Sequence[Tensor], size: int, tokenizer: Any) -> None:
    """Raise ``UsageError`` for token numbers that a model of ``size`` tokens does not have."""
    highest = int(torch.cat([*ids]).max())
    if highest >= size:
        raise UsageError(
            f"the tokenizer {_name_of(tokenizer)} is another model's: it makes token {highest:,}, "
            f"and the model has {size:,} tokens"
        )


def unknown_note(ids: Sequence[Tensor], tokenizer: Any) -> tuple[str, ...]:
    """A warning where more than a fifth of all tokens are unknown; none otherwise."""
    unknown = tokenizer.unk_token_id
    if unknown is None:
        return ()
    tokens = torch.cat([*ids])
    marks = torch.tensor([mark for mark in tokenizer.all_special_ids if mark != unknown])
    count = int((~torch.isin(tokens, marks)).sum())
    share = int((tokens == unknown).sum()) / max(1, count)
    if share <= UNKNOWN_SHARE:
        return ()
    return (
        f"warning: {share:.0%} of all tokens are unknown to the tokenizer: are the texts in the "
        "model's language, and is it the model's tokenizer?",
    )


def _sentences(model: object) -> Sentences | None:
    """What a folder of sentence-transformers holds besides the encoder; None for other models."""
    if isinstance(model, tuple):
        return None
    folder = expanded(str(model))
    return sentences_in(folder) if folder.is_dir() else None


def _numbers_in(inside: Sentences, config: Any) -> tuple[str, ...]:
    """A name for each number of a vector."""
    return tuple(map(str, range(inside.dimensions(config.hidden_size))))


def _to_embed(texts: Parts, prompt: str) -> tuple[dict[str, list[Row]], list[str]]:
    """The rows of each split, every text behind the prompt."""
    rows = {}
    for part, held in texts:
        if held.are_pairs:
            raise DataError(f"{held.source} has pairs, and a vector is of one text: give --columns")
        rows[SPLITS[part]] = [Row((prompt + row[0],), UNLABELLED) for row in held.rows]
    return rows, [f"prompt: {quoted(prompt)} goes before every text"] if prompt else []


def _rows_of(
    texts: Parts, config: Any, inside: Sentences | None, outputs: tuple[str, ...]
) -> tuple[Mapping[str, Any], dict[str, list[Row]], list[str]]:
    """The task's facts for the kind of answer, the rows of each split, and notes on labels."""
    if inside is not None:
        return VECTOR, *_to_embed(texts, inside.prompt)
    facts = BY_KIND[by_token(stated_class(config)) or answer_kind(config)]
    if facts.get("answer") == "span":
        _require_passages(texts)
    return facts, *(_labelled(texts, outputs) if facts is CLASS else _unlabelled(texts))


def _require_passages(texts: Parts) -> None:
    """Raise ``DataError`` unless every row is a question and its passage."""
    for _, held in texts:
        if not held.are_pairs:
            raise DataError(
                f"{held.source}: the model answers a question from a passage: give two texts a row"
            )


def _unlabelled(texts: Parts) -> tuple[dict[str, list[Row]], list[str]]:
    """The rows of each split, and a note where they have labels."""
    rows = {SPLITS[part]: [Row(row, UNLABELLED) for row in held.rows] for part, held in texts}
    some = any(any(held.labels or ()) for _, held in texts)
    return rows, ["labels are not used: the dense model's answers are"] if some else []


def _name_of(tokenizer: Any) -> str:
    return quoted(getattr(tokenizer, "name_or_path", "") or type(tokenizer).__name__, 200)


def _opened(model: str | Path | tuple[Any, Any]) -> tuple[Any, Any]:
    """The configuration and the tokenizer of a model."""
    if isinstance(model, tuple):
        opened, tokenizer = model
        require_fast(tokenizer, _name_of(tokenizer))
        return opened.config, tokenizer
    name = str(model)
    try:
        config = open_config(expanded(name) if expanded(name).is_dir() else name)
    except (OSError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise UsageError(f"no model at {quoted(name, 200)}: {quoted(reason, 150)[1:-1]}") from error
    return config, fast_tokenizer(name)


def _numbers_of(texts: Parts, classes: Sequence[str]) -> tuple[Mapping[str, int], list[str]]:
    """The class number of each label, and a note where the order was assumed."""
    labels = sorted({label for _, part in texts for label in part.labels or () if label})
    by_name = {name.strip().lower(): number for number, name in enumerate(classes)}
    if all(label.lower() in by_name for label in labels):
        return {label: by_name[label.lower()] for label in labels}, []
    if all(WHOLE.fullmatch(label) and 0 <= int(label) < len(classes) for label in labels):
        return {label: int(label) for label in labels}, []
    unnamed = all(name == f"LABEL_{number}" for number, name in enumerate(classes))
    if not unnamed or len(labels) != len(classes):
        strange = [label for label in labels if label.lower() not in by_name]
        raise UsageError(
            f"{texts.train.source} has the labels {listed(strange)}, and the model the classes "
            f"{listed(classes)}: rename them, or leave the labels out with an empty label"
        )
    ordered = in_order(labels)
    note = f"labels: numbered in sorted order, {listed(ordered, 8)}, as the model names no classes"
    return {label: number for number, label in enumerate(ordered)}, [note]


def _labelled(texts: Parts, classes: Sequence[str]) -> tuple[dict[str, list[Row]], list[str]]:
    """The rows of each split, and notes on their labels.

    A held-out split is evaluated on all its rows: where only some have a label, none are used.
    """
    numbers, notes = _numbers_of(texts, classes)
    rows = {}
    for part, held in texts:
        split, labels = SPLITS[part], held.labels or (None,) * len(held)
        if split != "train" and None in labels and any(labels):
            notes.append(f"{split}: some rows have no label, so none of its labels are used")
            labels = (None,) * len(held)
        rows[split] = [
            Row(row, UNLABELLED if label is None else numbers[label])
            for row, label in zip(held.rows, labels, strict=True)
        ]
    return rows, notes
