"""A model's answers in passages, and their correctness."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torch import Tensor

from sparing.tasks.shared.spans import Passages, exact_match
from sparing.tasks.shared.windows import best_span


def answers_in(
    passages: Passages, batches: Iterable[tuple[Sequence[int], Tensor]]
) -> tuple[list[str], list[bool]]:
    """Each question's best answer over all its windows, and whether it matches exactly.

    ``batches`` are numbers of windows and their logits (windows, tokens, start and end). Of equal
    answers that of the window which is read first counts.
    """
    best: list[tuple[float, int, str]] = [(float("-inf"), 0, "")] * len(passages.questions)
    for indices, logits in batches:
        for row, index in zip(logits, indices, strict=True):
            window = passages.windows[index]
            inside = row[window.first : window.first + len(window.places)]
            if not len(inside):
                continue
            first, last, score = best_span(inside)
            places, passage = window.places, passages.questions[window.question].passage
            text = passage[int(places[first, 0]) : int(places[last, 1])]
            # the longest windows are answered earlier, wherever they are in the passage
            candidate = (score, -window.skipped, text)
            best[window.question] = max(best[window.question], candidate, key=lambda one: one[:2])
    answers = [text for *_, text in best]
    right = [
        exact_match(answer, question.answers) == 1
        for answer, question in zip(answers, passages.questions, strict=True)
    ]
    return answers, right
