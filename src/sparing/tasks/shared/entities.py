"""Entity tasks: from words with labels to tokens, labels of tokens, and splits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from sparing.core.errors import UsageError
from sparing.tasks._facts import Facts
from sparing.tasks._splits import stratified
from sparing.tasks.shared.conll import Sentence
from sparing.tasks.shared.table import Row
from sparing.tasks.shared.task import UNLABELLED, Examples, Task
from sparing.tasks.shared.text import BYTES, VALIDATION, Encoder, Reading, encoder_of, token_task
from sparing.tasks.shared.tokens import (
    LOOSE,
    MARK,
    OUTSIDE,
    entity_codes,
    parsed,
    segments_in,
)
from sparing.tasks.shared.words import CLASS, spaced

Parts = dict[str, list[Sentence]]


class Tokens(NamedTuple):
    """The tokens of a text, the word of each, and whether the text was cut."""

    ids: Int[Tensor, " tokens"]
    words: Int[Tensor, " tokens"]
    cut: bool


def entity_task(
    name: str,
    facts: Facts,
    parts: Mapping[str, Sequence[Sentence]],
    reading: Reading,
    notes: Sequence[str] = (),
    *,
    subset: bool = False,
) -> Task:
    """A task of texts with a label for each word.

    ``parts`` are ``train``, and perhaps ``validation`` and ``test``; what is missing is cut from
    ``train`` by the seed. Texts are cut to ``max_tokens``: a note counts their entities, which have
    no part in any score.
    """
    _require_words(name, reading)
    rows, cut = cut_parts(parts, reading)
    names = label_names(rows)
    encoder = encoder_of([Row((row.text,)) for row in rows["train"]], reading)
    splits, lost = _splits(rows, encoder, reading.max_tokens, names)
    return token_task(
        name,
        facts,
        names,
        splits,
        encoder,
        answer="entities",
        notes=(*notes, *cut, *lost, *_unseen(rows)),
        subset=subset,
    )


def _require_words(name: str, reading: Reading) -> None:
    if reading.tokenizer == BYTES:
        raise UsageError(f"{name}: entities are of words, so tokens cannot be bytes")
    if reading.max_tokens < 2:
        raise UsageError(f"{name}: max_tokens must be at least 2; got {reading.max_tokens}")


def cut_parts(parts: Mapping[str, Sequence[Sentence]], reading: Reading) -> tuple[Parts, list[str]]:
    """All three splits, and a note on a test split that was cut from the training texts."""
    rows, notes = {split: [*given] for split, given in parts.items()}, list[str]()
    if "test" not in rows:
        share = len(rows["train"]) // 5
        if not share:
            count = len(rows["train"])
            raise UsageError(f"{count} texts are too few to cut a test split from")
        notes.append(f"test: {share} of {len(rows['train'])} texts cut from the training file")
        rows["test"], rows["train"] = _cut(
            rows["train"], (share, len(rows["train"]) - share), reading.seed
        )
    whole = len(rows["train"])
    held_out = 0 if "validation" in rows else min(VALIDATION, whole // 10)
    count = whole - held_out if reading.examples is None else reading.examples
    validation, rows["train"] = _cut(rows["train"], (held_out, count), reading.seed)
    rows.setdefault("validation", validation)
    return rows, notes


def _cut(rows: Sequence[Sentence], sizes: Sequence[int], seed: int) -> list[list[Sentence]]:
    """Disjoint parts, with the same share of texts that have an entity."""
    strata = [any(label != OUTSIDE for label in row.labels) for row in rows]
    parts = stratified(strata, [row.text for row in rows], sizes, seed)
    return [[rows[index] for index in part] for part in parts]


def label_names(rows: Mapping[str, Sequence[Sentence]]) -> tuple[str, ...]:
    """The labels of all splits: O, then by type, those that begin an entity first."""
    there = {label for part in rows.values() for row in part for label in row.labels} - {OUTSIDE}
    return (OUTSIDE, *sorted(there, key=lambda label: (parsed(label)[1], not parsed(label)[0])))


def _unseen(rows: Parts) -> list[str]:
    """A note on labels that no training text has."""
    there = {label for row in rows["train"] for label in row.labels}
    strange = [label for label in label_names(rows) if label not in there | {OUTSIDE}]
    return [f"no training text has the label {', '.join(strange)}"] if strange else []


def _splits(
    rows: Parts, encoder: Encoder, most: int, names: Sequence[str]
) -> tuple[dict[str, Examples], list[str]]:
    """The examples of each split, and notes on what was cut or has no token."""
    splits, lost = {}, list[str]()
    for split, sentences in rows.items():
        splits[split], notes = _examples(sentences, encoder, most, names)
        lost += [f"{split}: {note}" for note in notes]
    return splits, lost


def _examples(
    sentences: Sequence[Sentence], encoder: Encoder, most: int, names: Sequence[str]
) -> tuple[Examples, list[str]]:
    """The examples of one split, and notes on it."""
    encode = _pretrained if encoder.tokenizer is not None else _by_vocabulary
    rows = encode(sentences, encoder, most)
    numbers = {label: number for number, label in enumerate(names)}
    width = max((len(row.ids) for row in rows), default=1)
    labels = torch.full((len(rows), width), UNLABELLED)
    lost = dropped = 0
    for index, (sentence, row) in enumerate(zip(sentences, rows, strict=True)):
        chosen = torch.tensor([numbers[label] for label in sentence.labels])
        first = _firsts(row.words)
        labels[index, [*first.values()]] = chosen[[*first]]
        lost += _hidden(chosen, first, names)
        dropped += 0 if row.cut else len(sentence.words) - len(first)
    cut = sum(row.cut for row in rows)
    notes = [f"{dropped:,} words have no token and no part in a score"] if dropped else []
    if cut:
        notes.append(
            f"{cut} of {len(rows)} texts have more than {most} tokens and were cut; {lost} "
            "entities behind have no part in a score"
        )
    return Examples(
        "input_ids", [row.ids for row in rows], labels, words=[row.words for row in rows]
    ), notes


def _firsts(words: Int[Tensor, " tokens"]) -> dict[int, int]:
    """The position of the first token of each word that has one."""
    first: dict[int, int] = {}
    for position, word in enumerate(words.tolist()):
        if word >= 0:
            first.setdefault(word, position)
    return first


def _hidden(chosen: Int[Tensor, " words"], first: Mapping[int, int], names: Sequence[str]) -> int:
    """How many entities have a word without a token."""
    if len(first) == len(chosen):
        return 0
    words = torch.arange(len(chosen))
    entities = segments_in(entity_codes(chosen, words, names), words, names)
    return sum(any(word not in first for word in range(a, b)) for a, b, _ in entities)


def _pretrained(sentences: Sequence[Sentence], encoder: Encoder, most: int) -> list[Tokens]:
    """Tokens by a pretrained tokenizer; a token belongs to the word of its last character."""
    if not sentences:
        return []
    made = encoder.tokenizer(
        [row.text for row in sentences], truncation=True, max_length=most
    ).encodings
    return [_tokens_of(sentence, one) for sentence, one in zip(sentences, made, strict=True)]


def _tokens_of(sentence: Sentence, encoding: object) -> Tokens:
    owner = list[int]()
    for number, word in enumerate(sentence.words):
        owner += [number] * len(word) + [LOOSE[0]]
    words = []
    places = zip(encoding.offsets, encoding.sequence_ids, strict=True)  # type: ignore[attr-defined]
    for (start, end), side in places:
        words.append(MARK if side is None else owner[end - 1] if end > start else LOOSE[0])
    ids = torch.tensor(encoding.ids)  # type: ignore[attr-defined]
    return Tokens(ids, torch.tensor(words), bool(encoding.overflowing))  # type: ignore[attr-defined]


def _by_vocabulary(sentences: Sequence[Sentence], encoder: Encoder, most: int) -> list[Tokens]:
    """Tokens by the task's own vocabulary, behind the class token."""
    assert encoder.words is not None
    rows = []
    for sentence in sentences:
        ids, words = [CLASS], [MARK]
        for number, word in enumerate(sentence.words):
            pieces = encoder.words.tokens(spaced(word))[1:]
            ids += pieces
            words += [number] * len(pieces)
        cut = len(ids) > most
        rows.append(Tokens(torch.tensor(ids[:most]), torch.tensor(words[:most]), cut))
    return rows
