"""How good a model is on a split, example by example."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sparing.core.errors import UsageError
from sparing.tasks import Examples, Task


@dataclass(frozen=True)
class Evaluation:
    """Accuracy, mean cross-entropy, and whether each example, in its own order, was right."""

    accuracy: float
    loss: float
    correct: list[bool]

    @property
    def count(self) -> int:
        """How many examples were looked at."""
        return len(self.correct)


def evaluate(
    model: nn.Module,
    task: Task,
    split: str = "test",
    *,
    batch_size: int = 128,
    on_progress: Callable[[float, str], None] | None = None,
) -> Evaluation:
    """Run a classifier over a split, in batches of like length, where the model's weights are.

    The model is put into evaluation mode and back; no generator is drawn from. Raises
    ``UsageError`` for an unknown or empty split.
    """
    examples = task.split(split)
    if batch_size < 1 or len(examples) == 0:
        raise UsageError(
            f"evaluate needs examples and a batch size of at least 1; {split} has "
            f"{len(examples)}, batch_size is {batch_size}"
        )
    device = next(model.parameters()).device
    correct, losses = torch.zeros(len(examples), dtype=torch.bool), torch.zeros(len(examples))
    done, was_training = 0, model.training
    model.eval()
    try:
        for indices in batches_by_length(examples, batch_size):
            batch = task.collate([examples[index] for index in indices])
            right, loss = _judge(model, {name: value.to(device) for name, value in batch.items()})
            correct[indices], losses[indices] = right.cpu(), loss.cpu()
            done += len(indices)
            if on_progress is not None:
                on_progress(done / len(examples), f"{split}: {done} of {len(examples)}")
    finally:
        model.train(was_training)
    return Evaluation(
        accuracy=int(correct.sum()) / len(correct),
        loss=float(losses.double().mean()),
        correct=correct.tolist(),
    )


def batches_by_length(examples: Examples, batch_size: int) -> Iterator[list[int]]:
    """All indices in batches of like length, longest first, so that trouble with memory shows."""
    lengths = examples.lengths
    order = sorted(range(len(examples)), key=lambda index: -lengths[index])
    for start in range(0, len(order), batch_size):
        yield order[start : start + batch_size]


@torch.inference_mode()
def _judge(model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Whether each answer is right, and its cross-entropy."""
    labels = batch.pop("labels")
    logits = model(**batch).logits.float()
    return logits.argmax(-1) == labels, F.cross_entropy(logits, labels, reduction="none")
