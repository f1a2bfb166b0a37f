"""Training for values: squared error, or the benchmark itself; evaluated by the remaining error."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sparing.core.errors import UsageError, require_choice
from sparing.core.ranks import mean_of
from sparing.mechanisms.shared.arithmetic import wide
from sparing.tasks import Task
from sparing.train.answers import outputs_of
from sparing.train.evaluation import Evaluation, evaluate

LOSSES = ("squared", "benchmark")


class ValueLoss:
    """The mean squared error, or the bounded benchmark as a loss; evaluated by the former.

    Formula: "benchmark" is the mean of log(1 + e / b) over the batch's mean absolute error and its
    mean relative one, each with its baseline b: minus the logarithm of the bounded score.

    Symbols: ``baseline`` holds b under the names mean and relative. It includes only training sums;
    the published benchmark is of its test sets.

    Source: Mukin, A Predictive Calculator (2025), section 6.5, proposes the benchmark as the loss.
    """

    teacher: nn.Module | None = None
    metric = "minus squared error"
    splits = True

    def __init__(self, loss: str = "squared", baseline: Mapping[str, float] | None = None) -> None:
        require_choice("training", "loss", loss, LOSSES)
        self.loss = loss
        self.baseline = dict(baseline or {})
        if loss == "benchmark" and not all(
            self.baseline.get(n, 0) > 0 for n in ("mean", "relative")
        ):
            raise UsageError("the benchmark as a loss needs a baseline's errors: mean and relative")

    def __call__(self, model: nn.Module, batch: dict[str, Tensor], step: int) -> Float[Tensor, ""]:
        """The loss of a batch."""
        given = {name: value for name, value in batch.items() if name != "labels"}
        values, truth = wide(outputs_of(model(**given)))[:, 0], batch["labels"]
        if self.loss == "squared":
            return mean_of((values - truth).square())
        error = (values - truth).abs()
        relative = error / truth.abs().clamp(min=1)
        parts = {"mean": mean_of(error), "relative": mean_of(relative)}
        logs = [(1 + part / self.baseline[name]).log() for name, part in parts.items()]
        return torch.stack(logs).mean()

    def validate(self, model: nn.Module, task: Task, batch_size: int) -> Evaluation:
        """On the validation split: minus the squared error, beside the task's scores."""
        evaluation = evaluate(model, task, "validation", batch_size=batch_size)
        return replace(
            evaluation,
            metric=self.metric,
            scores={self.metric: -evaluation.loss, **evaluation.scores},
        )

    def describe(self) -> dict[str, Any]:
        """The loss, and its baseline errors."""
        return {"loss": self.loss, "baseline": self.baseline}
