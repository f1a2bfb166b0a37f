"""SST-2: is a phrase from a film review positive or negative?

Source: Socher et al., 2013; Wang et al., 2018, arXiv 1804.07461 (GLUE). The training set holds
phrases and the sentences that they come from, so that validation accuracy, on rows cut from it, is
higher than test accuracy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from sparing.core.errors import DataError, UsageError
from sparing.tasks._files import data_folder, find, given_folder, read_bytes
from sparing.tasks._splits import stratified
from sparing.tasks._task import Examples, Task
from sparing.tasks._words import PAD, words_from

Rows = list[tuple[str, int]]
LABELS = ("negative", "positive")
VALIDATION = 2000
WANTED = "GLUE's train.tsv and dev.tsv (or .gz)"


def load(
    *,
    data: Path | None = None,
    tokenizer: str | None = None,
    vocabulary: int = 8192,
    max_tokens: int = 128,
    examples: int | None = None,
    seed: int = 0,
) -> Task:
    """Two classes; GLUE's dev set is the test split, validation is cut from its training set.

    Validation takes 2,000 rows (at most a tenth), with the classes in proportion; the sentence
    decides, not its row. ``examples`` keeps only so many training rows. Without ``tokenizer`` the
    words of the training split make the vocabulary, ``vocabulary`` tokens at most, unknown words
    in bytes; with it, the tokenizer of that path is used. Texts are cut to ``max_tokens``.
    The files are GLUE's tsv, packed or not, in glue/SST-2 or SST-2 below the data folder, or in it;
    without a data folder the set is fetched from the hub.
    """
    if max_tokens < 2:
        raise UsageError(f"sst2: max_tokens must be at least 2, got {max_tokens}")
    whole, test = _from_hub() if given_folder(data) is None else _from_files(data)
    validation, train = _cut(whole, examples, seed)
    encode, size, pad, pretrained = _encoder(train, tokenizer, vocabulary, max_tokens)
    fit, check, judge = (_examples(rows, encode) for rows in (train, validation, test))
    return Task(
        "sst2",
        "tokens",
        fit,
        check,
        judge,
        labels=LABELS,
        tokens=max(max(split.lengths, default=1) for split in (fit, check, judge)),
        licence="none stated by GLUE; cite Socher et al. 2013",
        source="Stanford Sentiment Treebank (Socher et al. 2013) as GLUE's SST-2, arXiv 1804.07461",
        vocabulary=size,
        pad_id=pad,
        tokenizer=pretrained,
    )


def _cut(whole: Rows, examples: int | None, seed: int) -> list[Rows]:
    """The validation and training rows: a function of the sentences and the seed."""
    held_out = min(VALIDATION, len(whole) // 10)
    kept = len(whole) - held_out if examples is None else examples
    texts, answers = zip(*whole, strict=True)
    parts = stratified(answers, texts, (held_out, kept), seed)
    return [[whole[index] for index in part] for part in parts]


def _from_files(data: Path | None) -> tuple[Rows, Rows]:
    folder = data_folder("sst2", data, ("glue/SST-2", "SST-2"), WANTED)
    return tuple(read_rows(find("sst2", folder, [f"{part}.tsv"])) for part in ("train", "dev"))  # type: ignore[return-value]


def read_rows(path: Path) -> Rows:
    """The sentences and labels of one of GLUE's files; quotes in it are literal.

    Raises ``DataError`` naming the first line that is not a sentence, a tab and 0 or 1.
    """
    try:
        lines = read_bytes(path).decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text") from error
    if lines[0].rstrip("\r").split("\t") != ["sentence", "label"]:
        raise DataError(f"{path}: the first line must name the columns sentence and label")
    rows = []
    for number, line in enumerate(lines[1:], start=2):
        text, _, label = line.rstrip("\r").rpartition("\t")
        if text and label in ("0", "1"):
            rows.append((text, int(label)))
        elif line:
            raise DataError(f"{path}: line {number} is not a sentence, a tab and 0 or 1")
    if not rows:
        raise DataError(f"{path} holds no rows")
    return rows


def _from_hub() -> tuple[Rows, Rows]:
    """Fetch, or take from the hub's own cache; every failure says what else can be done."""
    import datasets

    hidden = datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    try:
        found = datasets.load_dataset("nyu-mll/glue", "sst2")
        return tuple(  # type: ignore[return-value]
            list(zip(found[part]["sentence"], found[part]["label"], strict=True))
            for part in ("train", "validation")
        )
    # The hub's client, its transport and the file systems below raise errors of many kinds.
    except Exception as error:
        raise DataError(
            f"task sst2: the hub could not be reached ({type(error).__name__}); give --data or set "
            f"SPARING_DATA, and put {WANTED} into its glue/SST-2/"
        ) from error
    finally:
        if not hidden:
            datasets.enable_progress_bars()


def _encoder(
    train: Rows, tokenizer: str | None, vocabulary: int, max_tokens: int
) -> tuple[Callable[[Sequence[str]], list[list[int]]], int, int, Any]:
    """How texts become token numbers, how many of these there are, the pad, the tokenizer."""
    if tokenizer is None:
        words = words_from([text for text, _ in train], vocabulary)
        own = lambda texts: [words.encode(text, max_tokens) for text in texts]  # noqa: E731
        return own, words.size, PAD, None
    from transformers import AutoTokenizer

    try:
        pretrained = AutoTokenizer.from_pretrained(tokenizer)
    except (OSError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise UsageError(f"no tokenizer at {tokenizer!r}: {reason}") from error

    def encode(texts: Sequence[str]) -> list[list[int]]:
        ids: list[list[int]] = pretrained(list(texts), truncation=True, max_length=max_tokens)[
            "input_ids"
        ]
        return ids

    # Tokenizers of decoders often have no pad; their end token serves, as it is masked anyway.
    known = (pretrained.pad_token_id, pretrained.eos_token_id, PAD)
    pad = next(number for number in known if number is not None)
    return encode, len(pretrained), pad, pretrained


def _examples(rows: Rows, encode: Callable[[Sequence[str]], list[list[int]]]) -> Examples:
    inputs = [torch.tensor(ids) for ids in encode([text for text, _ in rows])]
    return Examples("input_ids", inputs, torch.tensor([label for _, label in rows]))
