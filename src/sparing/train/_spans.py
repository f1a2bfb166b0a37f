"""A model's answers in passages, and their correctness."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torch import Tensor

from sparing.tasks.shared.spans import Answer, Passages, best_answers, exact_match


def answers_in(
    passages: Passages, batches: Iterable[tuple[Sequence[int], Tensor]]
) -> tuple[list[str], list[bool]]:
    """Each question's best answer over all its windows, and whether it matches exactly.

    ``batches`` are numbers of windows and their logits (windows, tokens, start and end).
    """
    best_by_question: list[Answer | None] = [None] * len(passages.questions)
    for indices, logits in batches:
        for row, index in zip(logits, indices, strict=True):
            window = passages.windows[index]
            passage = passages.questions[window.question].passage
            best = best_answers(row, window, passage)[:1]
            before = best_by_question[window.question]
            if best and (before is None or best[0].score > before.score):
                best_by_question[window.question] = best[0]
    answers = ["" if answer is None else answer.text for answer in best_by_question]
    right = [
        exact_match(answer, question.answers) == 1
        for answer, question in zip(answers, passages.questions, strict=True)
    ]
    return answers, right
