"""A segment of a passage that answers a question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sparing.answers.base import Answers, Array, Encoded, Finding, Flags
from sparing.core.errors import DataError, Unsupported
from sparing.tasks.shared.spans import token_f1
from sparing.tasks.shared.windows import best_in_windows, windows_in


@dataclass(frozen=True, eq=False)
class Spans(Answers):
    """The first character of each answer and the one after its last (rows, 2), in ``passages``.

    ``scores`` are the sums of the logits of the first and the last token.
    """

    places: NDArray[np.int64]
    scores: NDArray[np.float64]
    passages: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.places)

    def same(self, other: Spans) -> Flags:
        """Whether each answer is the same segment."""
        same: Flags = (self.places == other.places).all(1)
        return same

    def words(self, index: int) -> str:
        """The answer's text."""
        start, end = self.places[index]
        return self.passages[index][start:end]

    def distance(self, other: Spans) -> Array:
        """1 less the F1 of the words of both answers."""
        return 1 - self._overlaps(other)

    def findings(self, other: Spans) -> list[Finding]:
        """The mean F1 of the words of both answers."""
        f1 = float(self._overlaps(other).mean())
        words = f"The answers share {100 * f1:.2f} % of their words (mean F1)."
        return [Finding("answer_f1", f1, "score", words)]

    def _overlaps(self, other: Spans) -> Array:
        return np.array(
            [token_f1(other.words(index), [self.words(index)]) for index in range(len(self))]
        )


def in_windows(encoded: Encoded, limit: int, where: str) -> Encoded:
    """The row with its windows, where a model reads ``limit`` tokens of it at once.

    Raises ``DataError``, which names the row by ``where``, if the question leaves no token.
    """
    ranges = windows_in([part == 1 for part in encoded.parts], limit)
    if ranges is None:
        raise DataError(f"{where}: the question leaves the passage no token")
    if len(ranges) == 1:
        return encoded
    first, past = int(ranges[0, 0]), int(ranges[-1, 1])

    def of_window(row: Sequence[Any], start: int, end: int) -> list[Any]:
        return [*row[:first], *row[start:end], *row[past:]]

    windows = []
    for start, end in ranges.tolist():
        values = {name: of_window(row, start, end) for name, row in encoded.values.items()}
        places = (encoded.offsets, encoded.parts, encoded.words)
        windows.append(Encoded(values, *(of_window(row, start, end) for row in places)))
    return replace(encoded, windows=windows)


def span_of(logits: Array, encoded: Encoded) -> tuple[int, int, float]:
    """The best answer of one row from its logits (tokens, first and last): characters and score.

    The tokens of its windows are one after another. Raises ``DataError`` where the question leaves
    the passage no token.
    """
    if not encoded.parts:
        raise Unsupported(
            "answers in passages need a tokenizer that gives the places of tokens: a fast one of "
            "transformers"
        )
    read, places, position = list[tuple[int, Tensor]](), list[tuple[int, int]](), 0
    for window in encoded.read:
        inside = [token for token, part in enumerate(window.parts) if part == 1]
        of_window = logits[position : position + len(window)][inside]
        read.append((len(places), torch.from_numpy(of_window)))
        places += [window.offsets[token] for token in inside]
        position += len(window)
    if not places:
        raise DataError("the question leaves no token of the passage")
    first, last, score = best_in_windows(read)
    return int(places[first][0]), int(places[last][1]), score


def require_pairs(rows: Sequence[tuple[str, ...]], source: str) -> None:
    """Raise ``DataError`` unless rows are a question and a passage."""
    if any(len(row) != 2 for row in rows):
        raise DataError(f"{source}: a question and its passage are two texts a row")
