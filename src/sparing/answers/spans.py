"""A segment of a passage that answers a question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sparing.answers.base import Answers, Array, Encoded, Finding, Flags
from sparing.core.errors import DataError, Unsupported
from sparing.tasks.shared.spans import token_f1
from sparing.tasks.shared.tokens import LONGEST


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


def span_of(logits: Array, encoded: Encoded) -> tuple[int, int, float]:
    """The best answer of one row from its logits (tokens, first and last): characters and score.

    It is the pair of tokens of the passage with the largest sum, in order and at most 30 tokens
    long. Source: Devlin et al., 2019, arXiv 1810.04805, section 4.2. Raises ``DataError`` where the
    question leaves the passage no token.
    """
    if not encoded.parts:
        raise Unsupported(
            "answers in passages need a tokenizer that gives the places of tokens: a fast one of "
            "transformers"
        )
    inside = [token for token, part in enumerate(encoded.parts) if part == 1]
    if not inside:
        raise DataError("the question leaves no token of the passage")
    starts, ends = logits[inside, 0], logits[inside, 1]
    sums = starts[:, None] + ends[None, :]
    lengths = np.arange(len(inside))[None, :] - np.arange(len(inside))[:, None]
    sums = np.where((lengths >= 0) & (lengths < LONGEST), sums, -np.inf)
    first, last = np.unravel_index(int(sums.argmax()), sums.shape)
    begin, end = encoded.offsets[inside[int(first)]][0], encoded.offsets[inside[int(last)]][1]
    return int(begin), int(end), float(sums[first, last])


def require_pairs(rows: Sequence[tuple[str, ...]], source: str) -> None:
    """Raise ``DataError`` unless rows are a question and a passage."""
    if any(len(row) != 2 for row in rows):
        raise DataError(f"{source}: a question and its passage are two texts a row")
