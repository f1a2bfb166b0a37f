"""Text tasks: from rows of one or two texts to token numbers and splits."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from sparing.core.errors import DataError, UsageError, quoted
from sparing.core.paths import expanded
from sparing.tasks._facts import Facts
from sparing.tasks._splits import kept_together, pooled_when_rare, stratified
from sparing.tasks.shared.rankings import query_note, query_numbers
from sparing.tasks.shared.table import Row
from sparing.tasks.shared.task import Examples, Task
from sparing.tasks.shared.tokens import words_of
from sparing.tasks.shared.windows import windows_in
from sparing.tasks.shared.words import CLASS, FIRST_BYTE, PAD, Words, shortened, spaced, words_from

BYTES = "bytes"
VOCABULARIES = (
    "tokenizer.json",
    "vocab.txt",
    "vocab.json",
    "spiece.model",
    "sentencepiece.bpe.model",
    "tokenizer.model",
    "source.spm",
)
VALIDATION = 2000
# The label of a ranking is a number: the relevance of a pair's second text to its first.
TextAnswer = Literal["class", "number", "labels", "ranking"]


class Encoded(NamedTuple):
    """Token numbers, token types where there are any, how many rows were cut, words of tokens.

    ``windows`` are those of second texts, where rows are not cut.
    """

    ids: list[list[int]] | list[Tensor]
    types: list[list[int]] | None
    cut: int
    words: list[Tensor] | None = None
    windows: list[Tensor] | None = None


@dataclass(frozen=True)
class Reading:
    """How texts become token numbers, and which rows are kept.

    Without ``tokenizer`` the words of the training split make the vocabulary, ``vocabulary`` tokens
    at most, with unknown words in bytes. Otherwise the tokenizer of that path or hub name is used.
    With "bytes" every byte of a text is a token, whether it is UTF-8 or not. Texts are cut to
    ``max_tokens``, of a pair the longer one first. ``examples`` limits the training rows.
    ``held_out`` is the size of the validation split where none is published (None: 2,000, at most a
    tenth). ``tokenised`` texts already have spaces around their punctuation.
    """

    tokenizer: str | None = None
    vocabulary: int = 8192
    max_tokens: int = 128
    examples: int | None = None
    seed: int = 0
    tokenised: bool = False
    held_out: int | None = None


@dataclass(frozen=True)
class Corpus:
    """Rows as read; validation is cut from the training rows where it is None."""

    train: Sequence[Row]
    test: Sequence[Row]
    validation: Sequence[Row] | None = None
    more_tests: Mapping[str, Sequence[Row]] = field(default_factory=dict)
    subset: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Encoder:
    """From rows to token numbers; ``size`` is how many tokens there are."""

    encode: Callable[[Sequence[Row]], Encoded]
    size: int
    pad: int
    tokenizer: Any = None
    words: Words | None = None


def text_task(
    name: str,
    facts: Facts,
    labels: tuple[str, ...],
    corpus: Corpus,
    reading: Reading,
    answer: TextAnswer = "class",
) -> Task:
    """A task of texts or pairs, validation cut by seed from the training rows where needed."""
    least = 5 if len(corpus.test[0].texts) > 1 else 2
    if reading.max_tokens < least:
        raise UsageError(f"{name}: max_tokens must be at least {least}; got {reading.max_tokens}")
    validation, train = _cut(corpus, reading, answer)
    encoder = encoder_of(train, reading)
    rows = {"train": train, "validation": validation, "test": corpus.test, **corpus.more_tests}
    splits, notes = encoded_splits(rows, encoder, answer, reading.max_tokens)
    return token_task(
        name,
        facts,
        labels,
        splits,
        encoder,
        answer="number" if answer == "ranking" else answer,
        notes=(*corpus.notes, *notes),
        subset=corpus.subset,
    )


def token_task(
    name: str,
    facts: Facts,
    labels: tuple[str, ...],
    splits: Mapping[str, Examples],
    encoder: Encoder,
    *,
    answer: Literal["class", "number", "labels", "entities"],
    notes: tuple[str, ...],
    subset: bool,
) -> Task:
    """A task of encoded texts; splits beside the usual three are further test splits."""
    usual = ("train", "validation", "test")
    return Task(
        name,
        "tokens",
        splits["train"],
        splits["validation"],
        splits["test"],
        labels=labels,
        tokens=max(max(split.lengths, default=1) for split in splits.values()),
        licence=facts.licence,
        source=facts.source,
        metrics=facts.metrics,
        metric=facts.metric,
        answer=answer,
        vocabulary=encoder.size,
        pad_id=encoder.pad,
        tokenizer=encoder.tokenizer,
        words=encoder.words,
        more_tests={split: rows for split, rows in splits.items() if split not in usual},
        subset=subset,
        notes=notes,
    )


def encoded_splits(
    rows: Mapping[str, Sequence[Row]], encoder: Encoder, answer: str, max_tokens: int
) -> tuple[dict[str, Examples], list[str]]:
    """The examples of each split, and a note on each that had texts to cut."""
    splits, notes = {}, []
    for name, part in rows.items():
        splits[name], cut = _examples(part, encoder, answer)
        if answer == "ranking" and name != "train":
            relevance = torch.tensor([row.label for row in part], dtype=torch.float64)
            queries = torch.tensor(query_numbers([row.texts for row in part]))
            notes.append(f"{name}: {query_note(torch.stack((relevance, queries.double()), 1))}")
        if cut:
            notes.append(
                f"{name}: {cut} of {len(part)} texts have more than {max_tokens} tokens and were "
                "cut"
            )
    return splits, notes


def cut_rows(
    rows: Sequence[Row], sizes: Sequence[int], seed: int, answer: str = "class"
) -> list[list[Row]]:
    """Disjoint parts of the given sizes, by the texts and the seed, not by their order."""
    if answer == "ranking":
        return _by_query(rows, sizes, seed)
    keys, labels = ["\t".join(row.texts) for row in rows], [row.label for row in rows]
    strata: Sequence[Hashable] = [round(label) for label in labels]
    if answer != "class":
        values = labels if answer == "number" else [row.flags for row in rows]
        strata = pooled_when_rare(values, sizes)
    parts = stratified(strata, keys, sizes, seed)
    return [[rows[index] for index in part] for part in parts]


def _by_query(rows: Sequence[Row], sizes: Sequence[int], seed: int) -> list[list[Row]]:
    """The same with all rows of a query in one part; the sizes are the most that a part has.

    Where they are those of all rows, the last part gets what others have no room for.
    """
    *first, last = sizes
    parts = kept_together([row.texts[:1] for row in rows], first, seed)
    if sum(sizes) < len(rows) and len(parts[-1]) > last:
        texts = [rows[index].texts[:1] for index in parts[-1]]
        parts[-1] = [parts[-1][index] for index in kept_together(texts, (last,), seed)[0]]
    return [[rows[index] for index in part] for part in parts]


def _cut(corpus: Corpus, reading: Reading, answer: str) -> tuple[Sequence[Row], Sequence[Row]]:
    """The validation and the training rows."""
    whole = len(corpus.train)
    if corpus.validation is not None:
        count = whole if reading.examples is None else reading.examples
        return corpus.validation, cut_rows(corpus.train, (count,), reading.seed, answer)[0]
    requested = reading.held_out
    held_out = min(VALIDATION, whole // 10) if requested is None else requested
    if requested is not None and not 0 < requested < whole:
        raise UsageError(f"held_out must be at least 1 and below {whole} here; got {held_out}")
    count = whole - held_out if reading.examples is None else reading.examples
    validation, train = cut_rows(corpus.train, (held_out, count), reading.seed, answer)
    return validation, train


def encoder_of(train: Sequence[Row], reading: Reading) -> Encoder:
    """How texts become token numbers, with a vocabulary of the training rows where none is given.

    Raises ``UsageError`` for a tokenizer that cannot be opened.
    """
    if reading.tokenizer is None:
        return _words(train, reading)
    if reading.tokenizer == BYTES:
        return _bytes(reading)
    return pretrained_encoder(fast_tokenizer(reading.tokenizer), reading.max_tokens)


def _words(train: Sequence[Row], reading: Reading) -> Encoder:
    """The words of the training rows; the class token also separates a pair's texts."""
    plain = str if reading.tokenised else spaced
    words = words_from((plain(text) for row in train for text in row.texts), reading.vocabulary)

    def encode(rows: Sequence[Row]) -> Encoded:
        ids, cut = [], 0
        for row in rows:
            first, *rest = [words.tokens(plain(text)) for text in row.texts]
            second = rest[0] if rest else []
            parts = shortened(first, second, reading.max_tokens)
            cut += len(parts[0]) + len(parts[1]) < len(first) + len(second)
            ids.append([*parts[0], *parts[1]])
        return Encoded(ids, None, cut)

    return Encoder(encode, words.size, PAD, words=words)


def _bytes(reading: Reading) -> Encoder:
    """A token for each byte; the class token also separates a pair's texts."""

    def encode(rows: Sequence[Row]) -> Encoded:
        ids, cut = [], 0
        for row in rows:
            # in front a slot for the class token, which is not a byte
            first, *rest = [b" " + _raw(text) for text in row.texts]
            second = rest[0] if rest else b""
            parts = shortened(first, second, reading.max_tokens)
            cut += len(parts[0]) + len(parts[1]) < len(first) + len(second)
            ids.append(torch.cat([_byte_tokens(text) for text in parts[: len(row.texts)]]))
        return Encoded(ids, None, cut)

    return Encoder(encode, 256 + FIRST_BYTE, PAD, words=Words({}))


def _byte_tokens(text: bytes) -> Int[Tensor, " tokens"]:
    """A token for each byte; the class token replaces the first one."""
    tokens = np.frombuffer(text, np.uint8).astype(np.int64) + FIRST_BYTE
    tokens[0] = CLASS
    return torch.from_numpy(tokens)


def _raw(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


def has_vocabulary(folder: Path) -> bool:
    """Whether a folder holds a tokenizer's vocabulary; its configuration alone is not enough."""
    return any((folder / file).is_file() for file in VOCABULARIES)


def fast_tokenizer(name: str) -> Any:
    """The pretrained tokenizer of a path or hub name, one that knows its tokens' offsets.

    Raises ``UsageError`` where there is none.
    """
    from sparing.foreign.pretrained import open_tokenizer

    folder = expanded(name)
    if folder.is_dir() and not has_vocabulary(folder):
        # transformers would make one without a vocabulary
        raise UsageError(
            f"no tokenizer at {quoted(name, 200)}: there is no {', '.join(VOCABULARIES[:2])}"
        )
    try:
        tokenizer = open_tokenizer(name)
    except Exception as error:  # a damaged file raises any of them
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise UsageError(
            f"no tokenizer at {quoted(name, 200)}: {quoted(reason, 150)[1:-1]}"
        ) from error
    require_fast(tokenizer, f"at {quoted(name)}")
    return tokenizer


def require_fast(tokenizer: Any, name: str) -> None:
    """Raise ``UsageError`` for a tokenizer that has no vocabulary, or does not know offsets."""
    if len(tokenizer) <= len(tokenizer.all_special_ids):
        raise UsageError(f"the tokenizer {name} has no vocabulary")
    if not tokenizer.is_fast:
        raise UsageError(f"the tokenizer {name} is not a fast one")


def pad_of(tokenizer: Any) -> int:
    """The token number that fills up a batch.

    Tokenizers of decoders often have no pad; their end token is used, as it is masked anyway.
    """
    known: tuple[int | None, ...] = (tokenizer.pad_token_id, tokenizer.eos_token_id, PAD)
    return next(number for number in known if number is not None)


def pretrained_encoder(
    tokenizer: Any, max_tokens: int, *, windows: bool = False, words: bool = False
) -> Encoder:
    """The encoder of a fast tokenizer; texts are cut to ``max_tokens``.

    With ``windows`` pairs are not cut, and the windows of their second texts are given. With
    ``words`` it gives the words of tokens too. It raises ``DataError`` where a first text leaves
    the second no token of a window.
    """

    def encode(rows: Sequence[Row]) -> Encoded:
        if not rows:
            return Encoded([], None, 0)
        texts = [list(column) for column in zip(*(row.texts for row in rows), strict=True)]
        options = {"verbose": False} if windows else {"truncation": True, "max_length": max_tokens}
        encoded = tokenizer(*texts, **options)
        cut = sum(bool(one.overflowing) for one in encoded.encodings)
        types = encoded.get("token_type_ids") if len(texts) > 1 else None
        numbers = [words_of(one) for one in encoded.encodings] if words else None
        ranges = _windows(encoded.encodings, texts[0], max_tokens) if windows else None
        return Encoded(encoded["input_ids"], types, cut, numbers, ranges)

    return Encoder(encode, len(tokenizer), pad_of(tokenizer), tokenizer)


def _windows(encodings: Sequence[Any], questions: Sequence[str], most: int) -> list[Tensor]:
    """The windows of each row's second text."""
    ranges = []
    for one, question in zip(encodings, questions, strict=True):
        windows = windows_in([part == 1 for part in one.sequence_ids], most)
        if windows is None:
            raise DataError(
                f"{quoted(question, 60)} leaves none of the {most} tokens that the model reads for "
                "the text behind it: shorten it"
            )
        ranges.append(windows)
    return ranges


def _examples(rows: Sequence[Row], encoder: Encoder, answer: str) -> tuple[Examples, int]:
    ids, types, cut, words, windows = encoder.encode(rows)
    kind = torch.long if answer == "class" else torch.float32
    given = [row.flags if answer == "labels" else row.label for row in rows]
    labels = torch.tensor(given, dtype=kind)
    carried: list[Tensor] | None = None
    if types is not None:
        carried = [torch.tensor(row) for row in types]
    inputs = [torch.as_tensor(row) for row in ids]
    if any(len(row) == 0 for row in inputs):
        raise DataError(
            "a text has no tokens: the tokenizer adds none and drops all its characters"
        )
    queries = None
    if answer == "ranking":
        queries = torch.tensor(query_numbers([row.texts for row in rows]), dtype=torch.long)
    pairs = None
    if encoder.tokenizer is not None and rows and len(rows[0].texts) > 1:
        pairs = [row.texts for row in rows]
    examples = Examples(
        "input_ids",
        inputs,
        labels,
        carried,
        words=words,
        queries=queries,
        pairs=pairs,
        windows=windows,
    )
    return examples, cut
