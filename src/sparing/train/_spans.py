"""How good a model is at finding answers in passages."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from sparing.core.errors import UsageError
from sparing.tasks import Task
from sparing.tasks._spans import Answer, best_answers, exact_match, text_scores
from sparing.train.answers import label_loss, outputs_of
from sparing.train.evaluation import Evaluation, batches_by_length, evaluating


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
    losses, done = torch.zeros(len(examples)), 0
    with evaluating(model) as device:
        for indices in batches_by_length(examples, batch_size):
            batch = task.collate([examples[index] for index in indices])
            logits, loss = _judge(model, {name: value.to(device) for name, value in batch.items()})
            losses[indices] = loss
            for row, index in zip(logits, indices, strict=True):
                window = passages.windows[index]
                passage = passages.questions[window.question].passage
                best = best_answers(row, window, passage)[:1]
                before = found[window.question]
                if best and (before is None or best[0].score > before.score):
                    found[window.question] = best[0]
            done += len(indices)
            if on_progress is not None:
                on_progress(done / len(examples), f"{split}: {done} of {len(examples)} windows")
    answers = ["" if answer is None else answer.text for answer in found]
    return Evaluation(
        metric=task.metric,
        scores=text_scores(task.metrics, answers, passages.questions),
        loss=float(losses.double().mean()),
        predictions=answers,
        right=[
            exact_match(answer, question.answers) == 1
            for answer, question in zip(answers, passages.questions, strict=True)
        ],
    )


@torch.inference_mode()
def _judge(model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Each window's logits for first and last tokens, and its loss."""
    labels = batch.pop("labels")
    logits = outputs_of(model(**batch))
    if logits.shape[:2] != batch["input_ids"].shape:
        raise UsageError(
            f"the model answers with {tuple(logits.shape[1:])} numbers a row, not with a first and "
            "a last token: it finds no answers in passages"
        )
    return logits.float().cpu(), label_loss(logits, labels, reduction="none").cpu()
