"""The scores of a model on a split, example by example."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from sparing.core.errors import UsageError
from sparing.tasks import Examples, Task
from sparing.tasks.shared.rankings import MEASURES, values_by_query
from sparing.tasks.shared.scores import scores
from sparing.tasks.shared.spans import Passages, text_values
from sparing.train._spans import answers_in
from sparing.train.answers import label_loss, outputs_of, predictions_of
from sparing.train.room import fitting_batch


@dataclass(frozen=True)
class Evaluation:
    """The scores of a model on a split; lists are in the order of the examples.

    ``scores`` are the task's metrics by name, ``metric`` the one it is evaluated by. ``loss`` is
    the mean cross-entropy, or squared error where the answer is a number; 0 where it is another
    model's entities or spans, or a cosine. ``predictions`` are class numbers, values, or the texts
    of answers. ``right`` says for each example whether its class is right, for a text whether it
    matches exactly. For several labels and entities all must be right; it is None for numbers.
    ``per_example`` holds each example's value of the metrics that are means of such values and not
    accuracies, of rankings each query's. ``outputs`` are what was scored, rows of ``Task.read``,
    against ``truth``; None where answers are texts.
    """

    metric: str
    scores: dict[str, float]
    loss: float
    predictions: list[int] | list[float] | list[str] | list[list[int]]
    right: list[bool] | None
    per_example: dict[str, list[float]] = field(default_factory=dict)
    outputs: Tensor | None = field(default=None, repr=False, compare=False)
    truth: Tensor | None = field(default=None, repr=False, compare=False)

    @property
    def score(self) -> float:
        """The metric that the task is evaluated by."""
        return self.scores[self.metric]

    @property
    def accuracy(self) -> float:
        """The accuracy; raises ``UsageError`` where the answer is a number."""
        return sum(self.correct) / self.count

    @property
    def correct(self) -> list[bool]:
        """Whether each answer is right; raises ``UsageError`` where the answer is a number."""
        if self.right is None:
            raise UsageError(f"numbers have no accuracy: use {' or '.join(self.scores)}")
        return self.right

    @property
    def count(self) -> int:
        """How many examples were evaluated."""
        return len(self.predictions)


def evaluate(
    model: nn.Module,
    task: Task,
    split: str = "test",
    *,
    batch_size: int = 128,
    on_progress: Callable[[float, str], None] | None = None,
) -> Evaluation:
    """Run a model over a split, in batches of like length, on the device of its weights.

    The model is put into evaluation mode and back; no random generator is used. On a CPU batches
    are smaller where attention would not fit the free memory. Raises ``UsageError`` for an unknown
    or empty split, one without labels, or where one example would not fit.
    """
    examples = task.split(split)
    task.require_labels(split)
    if batch_size < 1 or len(examples) == 0:
        problem = "evaluate needs examples and a batch size of at least 1"
        raise UsageError(f"{problem}; {split} has {len(examples)}, batch_size is {batch_size}")
    losses = torch.zeros(len(examples))

    def batches() -> Iterator[tuple[list[int], Tensor]]:
        for indices, answers, loss in answers_of(model, task, split, batch_size, on_progress):
            losses[indices] = loss
            yield indices, answers

    with evaluating(model):
        if examples.passages is not None:
            return _of_spans(task, examples.passages, batches(), losses)
        outputs = torch.zeros(len(examples), task.width)
        for indices, answers in batches():
            outputs[indices] = task.read(answers, examples, indices)
    return _of_outputs(task, outputs, task.truth(examples), losses)


def _of_outputs(task: Task, outputs: Tensor, truth: Tensor, losses: Tensor) -> Evaluation:
    predictions, right = predictions_of(outputs, truth, task.answer)
    ranked = [name for name in task.metrics if name in MEASURES]
    return Evaluation(
        metric=task.metric,
        scores=scores(task.metrics, outputs, truth),
        loss=float(losses.double().mean()),
        predictions=predictions,
        right=right,
        per_example={name: values_by_query(name, outputs[:, 0], truth) for name in ranked},
        outputs=outputs,
        truth=truth,
    )


def _of_spans(
    task: Task,
    passages: Passages,
    batches: Iterator[tuple[list[int], Tensor]],
    losses: Tensor,
) -> Evaluation:
    """The best answer over all windows of each question; the loss is over windows."""
    answers, right = answers_in(passages, batches)
    per_example = text_values(task.metrics, answers, passages.questions)
    return Evaluation(
        metric=task.metric,
        scores={name: sum(values) / len(values) for name, values in per_example.items()},
        loss=float(losses.double().mean()),
        predictions=answers,
        right=right,
        per_example=per_example,
    )


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode, and each module's own mode restored: some may be fixed in one."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


def answers_of(
    model: nn.Module,
    task: Task,
    split: str,
    batch_size: int,
    on_progress: Callable[[float, str], None] | None,
) -> Iterator[tuple[list[int], Tensor, Tensor]]:
    """Indices of the examples, outputs and losses of each batch of like length, on the CPU."""
    examples, device, done = task.split(split), next(model.parameters()).device, 0
    if device.type == "cpu":
        batch_size = fitting_batch(model, task, examples, batch_size)
    for indices in batches_by_length(examples, batch_size):
        batch = task.collate([examples[index] for index in indices])
        there = {name: value.to(device) for name, value in batch.items()}
        outputs, losses = _outputs_and_losses(model, task, there)
        yield indices, outputs.cpu(), losses.cpu()
        done += len(indices)
        if on_progress is not None:
            on_progress(done / len(examples), f"{split}: {done} of {len(examples)}")


def batches_by_length(
    examples: Examples, batch_size: int, most_tokens: int | None = None
) -> Iterator[list[int]]:
    """All indices in batches of like length, longest first, so memory errors come early.

    ``most_tokens`` makes batches of long examples smaller: at most that many tokens, with padding,
    but always one example.
    """
    lengths = examples.lengths
    order = sorted(range(len(examples)), key=lambda index: -lengths[index])
    while order:
        size = batch_size
        if most_tokens is not None:
            size = max(1, min(size, most_tokens // max(1, lengths[order[0]])))
        yield order[:size]
        order = order[size:]


@torch.inference_mode()
def _outputs_and_losses(
    model: nn.Module, task: Task, batch: dict[str, Tensor]
) -> tuple[Tensor, Tensor]:
    """Each example's outputs and its loss; ``UsageError`` where they do not fit the task."""
    labels = batch.pop("labels")
    logits = outputs_of(model(**batch)).float()
    expected: tuple[int, ...] = (task.classes,)
    if task.answer in ("entities", "span"):
        expected = (batch["input_ids"].shape[1], task.classes)
    if logits.shape[1:] != expected:
        actual, needed = (" x ".join(map(str, shape)) for shape in (logits.shape[1:], expected))
        raise UsageError(f"the model gives {actual} outputs, but task {task.name} has {needed}")
    if task.by_token and labels.is_floating_point():  # another model's answers have no loss
        return logits, torch.zeros(len(labels))
    return logits, label_loss(logits, labels, reduction="none", answer=task.answer)
