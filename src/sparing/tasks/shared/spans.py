"""Answers that are spans of a text: windows of the text, answers read off, and their scores."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from sparing.core.errors import DataError, quoted
from sparing.tasks.shared.tokens import MARK, SECOND
from sparing.tasks.shared.windows import cut, windows_in

ARTICLES = re.compile(r"\b(?:a|an|the)\b")
MARKS = str.maketrans("", "", string.punctuation)
QUESTION_TOKENS = 64


@dataclass(frozen=True)
class Question:
    """A question on a passage, and human answers with the start of each."""

    key: str
    text: str
    passage: str
    answers: tuple[str, ...]
    starts: tuple[int, ...]


@dataclass(frozen=True)
class Window:
    """A segment of a passage that a model sees at once, behind the question.

    ``question`` is the question's number, ``first`` the position of the segment's first token.
    ``places`` are the characters of the passage that each of its tokens covers, from and to.
    ``skipped`` is how many tokens of the passage are before it.
    """

    question: int
    first: int
    places: Int[Tensor, "tokens 2"]
    skipped: int = 0


@dataclass(frozen=True)
class Passages:
    """The questions of a split and, for each example of it, its window."""

    questions: Sequence[Question]
    windows: Sequence[Window]

    def subset(self, indices: Sequence[int]) -> Passages:
        """These windows alone, and their questions."""
        windows = [self.windows[index] for index in indices]
        numbers = sorted({window.question for window in windows})
        number = {question: position for position, question in enumerate(numbers)}
        return Passages(
            [self.questions[question] for question in numbers],
            [replace(chosen, question=number[chosen.question]) for chosen in windows],
        )


def normalised(text: str) -> str:
    """Lower case, without punctuation, articles and extra spaces, as SQuAD's evaluation does."""
    return " ".join(ARTICLES.sub(" ", text.lower().translate(MARKS)).split())


def exact_match(answer: str, truths: Sequence[str]) -> float:
    """1 where the answer is one of the true answers, both normalised, else 0."""
    return float(any(normalised(answer) == normalised(truth) for truth in truths))


def token_f1(answer: str, truths: Sequence[str]) -> float:
    """The best F1 of the answer's words with those of a true answer, both normalised.

    Formula: 2 c / (m + n), c the words in common with their counts, m and n all words of either.
    Two empty texts are equal; one alone shares nothing.
    """
    return max(_overlap(normalised(answer).split(), normalised(truth).split()) for truth in truths)


def _overlap(answer: list[str], truth: list[str]) -> float:
    if not answer or not truth:
        return float(answer == truth)
    common = sum((Counter(answer) & Counter(truth)).values())
    return 2 * common / (len(answer) + len(truth))


TEXT_METRICS: Mapping[str, Callable[[str, Sequence[str]], float]] = {
    "exact_match": exact_match,
    "token_f1": token_f1,
}


def text_values(
    names: Sequence[str], answers: Sequence[str], questions: Sequence[Question]
) -> dict[str, list[float]]:
    """Each metric of each answer; a metric's score is their mean."""
    return {
        name: [
            TEXT_METRICS[name](answer, question.answers)
            for answer, question in zip(answers, questions, strict=True)
        ]
        for name in names
    }


def row_values(
    name: str, rows: Float[Tensor, "windows width"], passages: Passages
) -> Float[Tensor, "windows 1"]:
    """A metric of answers that are given by their first and last token, one for each window.

    Each window is a question of its own. The texts are read from the passages.
    """
    values = []
    for row, window in zip(rows.tolist(), passages.windows, strict=True):
        first, last = (int(end) - window.first for end in row[:2])
        question = passages.questions[window.question]
        begin, end = int(window.places[first, 0]), int(window.places[last, 1])
        values.append(TEXT_METRICS[name](question.passage[begin:end], question.answers))
    return torch.tensor(values, dtype=torch.float64)[:, None]


def words_in(window: Window, tokens: int) -> Int[Tensor, " tokens"]:
    """The tokens of a window's passage, numbered as ``tasks.shared.tokens`` wants them."""
    numbers = torch.full((tokens,), MARK)
    count = len(window.places)
    numbers[window.first : window.first + count] = SECOND + torch.arange(count)
    return numbers


def windows_of(
    questions: Sequence[Question], tokenizer: Any, max_tokens: int, stride: int
) -> tuple[list[list[int]], list[list[int]] | None, Int[Tensor, "windows 2"], Passages]:
    """Token numbers, token types, first and last token of the first answer, and the windows.

    A passage longer than ``max_tokens`` allows gives several windows, which share ``stride``
    tokens. Where the answer is not wholly in a window, both are 0, the class token. Questions are
    cut to 64 tokens. Raises ``DataError`` where one leaves its passage no token.

    Source: Devlin et al., 2019, arXiv 1810.04805, section 4.2.
    """
    encoded = tokenizer(
        [_cut(question.text, tokenizer) for question in questions],
        [question.passage for question in questions],
        return_offsets_mapping=True,
        verbose=False,  # it would warn of long rows
    )
    carried = encoded.get("token_type_ids")
    ids, types, windows = list[list[int]](), list[list[int]](), list[Window]()
    for number in range(len(questions)):
        inside = [side == 1 for side in encoded.sequence_ids(number)]
        ranges = windows_in(inside, max_tokens, stride)
        if ranges is None:
            raise DataError(f"question {quoted(questions[number].key)} leaves its passage no token")
        ids += [row.tolist() for row in cut(torch.tensor(encoded["input_ids"][number]), ranges)]
        if carried is not None:
            types += [row.tolist() for row in cut(torch.tensor(carried[number]), ranges)]
        places = torch.tensor(encoded["offset_mapping"][number], dtype=torch.int32)
        first = int(ranges[0, 0])
        windows += [Window(number, first, places[a:b], a - first) for a, b in ranges.tolist()]
    spans = [span_in(window, questions[window.question]) for window in windows]
    labels = torch.tensor(spans, dtype=torch.long).reshape(-1, 2)
    return ids, None if carried is None else types, labels, Passages(questions, windows)


def _cut(text: str, tokenizer: Any) -> str:
    """The question's first tokens, as text."""
    text = text.strip()
    places = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    ends: list[int] = [end for _, end in places["offset_mapping"][:QUESTION_TOKENS]]
    return text[: ends[-1]] if ends else text


def span_in(window: Window, question: Question) -> tuple[int, int]:
    """The first and last token of the question's first answer; 0 and 0 where it is not inside."""
    start, places = question.starts[0], window.places
    end = start + len(question.answers[0])
    begun = (places[:, 1] > start).nonzero()
    ended = (places[:, 0] < end).nonzero()
    whole = len(places) and int(places[0, 0]) <= start and int(places[-1, 1]) >= end
    if not whole or not len(begun) or not len(ended):
        return 0, 0
    return window.first + int(begun[0]), window.first + int(ended[-1])
