"""SQuAD 1.1: which span of a passage answers the question? Evaluated by F1 and exact match.

Source: Rajpurkar et al., 2016, arXiv 1606.05250.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from sparing.core.errors import DataError, UsageError, quoted
from sparing.core.reading import parse_json
from sparing.tasks._facts import Facts
from sparing.tasks._splits import hashed_order
from sparing.tasks.shared.files import data_folder, find, given_folder, read_bytes
from sparing.tasks.shared.hub import columns_of, from_hub
from sparing.tasks.shared.spans import Question, windows_of
from sparing.tasks.shared.task import Examples, Task
from sparing.tasks.shared.text import fast_tokenizer, pad_of

FACTS = Facts(
    metrics=("token_f1", "exact_match"),
    licence="CC BY-SA 4.0",
    source="SQuAD 1.1 (Rajpurkar et al. 2016), arXiv 1606.05250, rajpurkar.github.io",
    splits="the published dev set",
    chance=0.0,
)
PUBLISHED = {"train": 87599, "dev": 10570}
VALIDATION = 2000
WANTED = "train-v1.1.json and dev-v1.1.json (or .gz)"
FILES = {"train": ("train-v1.1.json", "train-v1.1-subset.json"), "dev": ("dev-v1.1.json",)}


def load(
    *,
    data: Path | None = None,
    tokenizer: str | None = None,
    max_tokens: int = 384,
    stride: int = 128,
    examples: int | None = None,
    test_examples: int | None = None,
    seed: int = 0,
) -> Task:
    """Questions on passages of Wikipedia; the dev set is the test split.

    Validation takes whole passages from the training set, with 2,000 questions (at most a tenth). A
    passage longer than ``max_tokens`` is seen in windows that share ``stride`` tokens; the answer
    with the highest score of all windows counts. ``tokenizer`` is a pretrained one: the task needs
    the offsets of its tokens. ``examples`` and ``test_examples`` limit the questions, those of the
    test sampled from all passages. Files are in squad/ below the data folder or in it; without one
    they come from the hub.
    """
    _check(tokenizer, max_tokens, stride)
    reader = fast_tokenizer(tokenizer or "")
    questions = _from_hub() if given_folder(data) is None else _from_files(data)
    train, validation = _cut(questions["train"], examples, seed)
    test = _drawn(questions["dev"], test_examples, seed)
    parts = {"train": train, "validation": validation, "test": test}
    splits = {name: _examples(part, reader, max_tokens, stride) for name, part in parts.items()}
    return replace(_task(splits, reader, _notes(questions, test)), stride=stride)


def _task(splits: dict[str, Examples], reader: Any, notes: tuple[str, ...]) -> Task:
    return Task(
        "squad",
        "tokens",
        splits["train"],
        splits["validation"],
        splits["test"],
        labels=("start", "end"),
        tokens=max(max(split.lengths, default=1) for split in splits.values()),
        licence=FACTS.licence,
        source=FACTS.source,
        metric=FACTS.metric,
        metrics=FACTS.metrics,
        answer="span",
        vocabulary=len(reader),
        pad_id=pad_of(reader),
        tokenizer=reader,
        subset=bool(notes),
        notes=notes,
    )


def _check(tokenizer: str | None, max_tokens: int, stride: int) -> None:
    if not tokenizer:
        raise UsageError("squad needs tokenizer, a pretrained one with token offsets")
    if not 0 <= stride < max_tokens - 70:
        raise UsageError(
            f"squad: max_tokens must leave 70 for the question beside stride; got {max_tokens} and "
            f"{stride}"
        )


def _notes(questions: dict[str, list[Question]], test: list[Question]) -> tuple[str, ...]:
    notes = [
        f"subset: {part} holds {len(read)} of {PUBLISHED[part]} published questions"
        for part, read in questions.items()
        if len(read) < PUBLISHED[part]
    ]
    if len(test) < len(questions["dev"]):
        notes.append(f"subset: test holds {len(test)} of {len(questions['dev'])} dev questions")
    return tuple(notes)


def _drawn(questions: list[Question], count: int | None, seed: int) -> list[Question]:
    """``count`` questions, sampled from the whole list, in its order."""
    if count is None:
        return questions
    if not 1 <= count <= len(questions):
        raise UsageError(f"squad: test_examples must be 1 to {len(questions)}; got {count}")
    order = hashed_order([question.key for question in questions], seed)
    return [questions[index] for index in sorted(order[:count])]


def _cut(
    questions: list[Question], examples: int | None, seed: int
) -> tuple[list[Question], list[Question]]:
    """Training and validation questions; those on one passage stay together."""
    order = hashed_order([question.passage for question in questions], seed)
    held_out = min(VALIDATION, len(questions) // 10)
    while 0 < held_out < len(order) and (
        questions[order[held_out]].passage == questions[order[held_out - 1]].passage
    ):
        held_out += 1
    chosen = order[held_out:] if examples is None else order[held_out : held_out + examples]
    if examples is not None and len(chosen) < examples:
        raise UsageError(f"{examples} examples requested, but there are {len(chosen)}")
    return [questions[i] for i in chosen], [questions[i] for i in order[:held_out]]


def _examples(questions: Sequence[Question], reader: Any, tokens: int, stride: int) -> Examples:
    ids, types, spans, passages = windows_of(questions, reader, tokens, stride)
    carried = None if types is None else [torch.tensor(row) for row in types]
    rows = [torch.tensor(row) for row in ids]
    return Examples("input_ids", rows, spans, carried, passages)


def _from_files(data: Path | None) -> dict[str, list[Question]]:
    folder = data_folder("squad", data, ("squad",), WANTED)
    return {part: read_questions(find("squad", folder, names)) for part, names in FILES.items()}


def read_questions(path: Path) -> list[Question]:
    """The questions of a file in SQuAD 1.1's format.

    Raises ``DataError`` for another format, and naming the question with an answer that is not at
    the stated position.
    """
    try:
        articles = parse_json(read_bytes(path).decode("utf-8-sig"))["data"]
        questions = [
            _question(
                str(path),
                str(entry["id"]),
                entry["question"],
                paragraph["context"],
                [answer["text"] for answer in entry["answers"]],
                [int(answer["answer_start"]) for answer in entry["answers"]],
            )
            for article in articles
            for paragraph in article["paragraphs"]
            for entry in paragraph["qas"]
        ]
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        raise DataError(f"{path} is not in SQuAD 1.1's format: {quoted(error, 80)}") from error
    return _checked(str(path), questions)


def _question(
    source: str, key: str, text: Any, passage: Any, answers: Sequence[Any], starts: Sequence[int]
) -> Question:
    if not all(isinstance(part, str) for part in (text, passage, *answers)):
        raise DataError(
            f"{source}: question {quoted(key)}: question, context and answers must be texts"
        )
    try:
        "".join((text, passage, *answers)).encode()
    except UnicodeError as error:
        raise DataError(f"{source}: question {quoted(key)} is not valid Unicode") from error
    return Question(key, text, passage, tuple(answers), tuple(starts))


def _checked(source: str, questions: list[Question]) -> list[Question]:
    if not questions:
        raise DataError(f"{source} holds no questions")
    for one in questions:
        if not one.answers:
            raise DataError(
                f"{source}: question {quoted(one.key)} has no answer; is this SQuAD 2.0?"
            )
        for text, start in zip(one.answers, one.starts, strict=True):
            if not text or start < 0 or one.passage[start : start + len(text)] != text:
                raise DataError(
                    f"{source}: question {quoted(one.key)}: {quoted(text)} is not at {start}"
                )
        if not one.text.strip():
            raise DataError(f"{source}: question {quoted(one.key)} is empty")
    return questions


def _from_hub() -> dict[str, list[Question]]:
    instead = f"give --data or set SPARING_DATA, and put {WANTED} into its squad/"
    hub = from_hub("squad", "rajpurkar/squad", instead=instead)
    questions = {}
    for part, split in (("train", "train"), ("dev", "validation")):
        columns = columns_of("squad", hub, split, ("id", "question", "context", "answers"))
        rows, source = zip(*columns, strict=True), f"the hub's {split}"
        questions[part] = _checked(
            source,
            [
                _question(source, key, text, passage, answers["text"], answers["answer_start"])
                for key, text, passage, answers in rows
            ],
        )
    return questions
