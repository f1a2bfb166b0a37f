"""How good a model is at finding answers in passages."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from sparing.tasks import Task
from sparing.tasks._spans import Answer, best_answers, exact_match, text_values
from sparing.train.evaluation import Evaluation, answers_of, evaluating


def evaluate_spans(
    model: nn.Module,
    task: Task,
    split: str,
    batch_size: int,
    on_progress: Callable[[float, str], None] | None,
) -> Evaluation:
    """Run a model over all windows; of each question the best answer of its windows counts.

    ``right`` tells for each question whether its answer matches exactly; the loss is over windows.
    """
    examples = task.split(split)
    passages = examples.passages
    assert passages is not None
    found: list[Answer | None] = [None] * len(passages.questions)
    losses = torch.zeros(len(examples))
    with evaluating(model):
        for indices, logits, loss in answers_of(model, task, split, batch_size, on_progress):
            losses[indices] = loss
            for row, index in zip(logits, indices, strict=True):
                window = passages.windows[index]
                passage = passages.questions[window.question].passage
                best = best_answers(row, window, passage)[:1]
                before = found[window.question]
                if best and (before is None or best[0].score > before.score):
                    found[window.question] = best[0]
    answers = ["" if answer is None else answer.text for answer in found]
    each = text_values(task.metrics, answers, passages.questions)
    return Evaluation(
        metric=task.metric,
        scores={name: sum(values) / len(values) for name, values in each.items()},
        loss=float(losses.double().mean()),
        predictions=answers,
        right=[
            exact_match(answer, question.answers) == 1
            for answer, question in zip(answers, passages.questions, strict=True)
        ],
        each=each,
    )
