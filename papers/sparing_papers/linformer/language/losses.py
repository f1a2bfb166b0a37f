"""What language models learn and are evaluated by: the words of a text, one by one."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from sparing.core.ranks import over_ranks
from sparing.core.record import Label, Record, measured
from sparing.mechanisms.shared.arithmetic import wide
from sparing.tasks import Task
from sparing.train.evaluation import Evaluation, evaluating

METRIC = "likelihood"
NOTHING = -100  # where no word is wanted: torch's losses skip it
EVALUATED_TOKENS = 8192  # of held-out text at once: the scores of all words take memory
Inputs = dict[str, Tensor]
Shown = tuple[Inputs, Int[Tensor, " words"]]


class WordLoss(ABC):
    """Cross-entropy of words: the mean of -log p(word) over those that are wanted.

    Its score, "likelihood", is exp(-loss), one over the perplexity. What a model is shown follows
    from the data and the step, or the name of the split, alone.
    """

    teacher: nn.Module | None = None
    metric = METRIC
    splits = True

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """What makes two runs the same."""

    @abstractmethod
    def shown(self, batch: Mapping[str, Tensor], step: int) -> Shown:
        """What a model is shown of a batch in a step, and the words that are wanted."""

    @abstractmethod
    def parts(self, task: Task, split: str, size: int = 0) -> Iterator[Shown]:
        """The same for a whole split, in parts; ``size`` examples each where the loss takes it."""

    @abstractmethod
    def scores(self, model: nn.Module, inputs: Inputs) -> Float[Tensor, "words vocabulary"]:
        """The scores of all words for every wanted one."""

    def __call__(self, model: nn.Module, batch: dict[str, Tensor], step: int) -> Float[Tensor, ""]:
        """The loss of a batch."""
        inputs, targets = self.shown(batch, step)
        loss = F.cross_entropy(wide(self.scores(model, inputs)), targets)
        return over_ranks(loss, (targets != NOTHING).sum())

    def validate(self, model: nn.Module, task: Task, batch_size: int) -> Evaluation:
        """The model on the validation split."""
        return self.evaluate(model, task, "validation", batch_size)

    def evaluate(self, model: nn.Module, task: Task, split: str, size: int = 0) -> Evaluation:
        """The loss and the share of right words over all wanted words of a split."""
        losses, right = [], []
        device = next(model.parameters()).device
        with evaluating(model), torch.inference_mode():
            for inputs, targets in self.parts(task, split, size):
                on_device = {name: value.to(device) for name, value in inputs.items()}
                scores, real = self.scores(model, on_device).float().cpu(), targets != NOTHING
                losses.append(F.cross_entropy(scores, targets, reduction="none")[real])
                right += (scores.argmax(-1) == targets)[real].tolist()
        return word_evaluation(torch.cat(losses), right)


def word_evaluation(losses: Float[Tensor, " words"], right: list[bool]) -> Evaluation:
    """The mean over all words of a split, as an evaluation."""
    loss = float(losses.double().mean())
    return Evaluation(METRIC, {METRIC: math.exp(-loss)}, loss, losses.tolist(), right)


def by_frequency(
    chances: Float[Tensor, " vocabulary"], targets: Int[Tensor, " words"]
) -> Evaluation:
    """Guessing every word by its share of the training text."""
    return word_evaluation(-chances[targets].log(), (targets == int(chances.argmax())).tolist())


def text_records(evaluation: Evaluation, labels: Mapping[str, Label]) -> list[Record]:
    """Perplexity and its logarithm, and the share of words guessed right."""
    assert evaluation.right is not None
    right, count = sum(evaluation.right) / len(evaluation.right), evaluation.count
    return [
        *measured(labels, "", count, perplexity=math.exp(evaluation.loss)),
        *measured(labels, "nats", count, loss=evaluation.loss),
        *measured(labels, "share", count, token_accuracy=right),
    ]
