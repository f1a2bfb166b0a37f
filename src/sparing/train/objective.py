"""The loss of a training step: labels, a teacher, or many forms of one model at once."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor, nn

from sparing.tasks import Task
from sparing.train.answers import label_loss, outputs_of
from sparing.train.distillation import distillation_loss
from sparing.train.evaluation import Evaluation
from sparing.train.recipe import Distillation


@runtime_checkable
class Objective(Protocol):
    """A loss of a model on a batch; everything random in it follows from the step's number."""

    @property
    def teacher(self) -> nn.Module | None:
        """The teacher, if any; it is moved to the device of the training."""

    def __call__(self, model: nn.Module, batch: dict[str, Tensor], step: int) -> Float[Tensor, ""]:
        """The loss of a batch with ``labels``."""

    def describe(self) -> dict[str, Any]:
        """The settings that make two runs with this objective the same run, for JSON."""


@runtime_checkable
class Validator(Protocol):
    """An objective with its own validation, where a task's labels do not give one."""

    @property
    def metric(self) -> str:
        """The score by which the best validation is chosen; higher is better."""

    def validate(self, model: nn.Module, task: Task, batch_size: int) -> Evaluation:
        """The model on the task's validation split."""


def splits(objective: Objective) -> bool:
    """Whether a loss is right where each of several processes has a share of the batch.

    Its means must be those of ``sparing.core.ranks``; it says so with ``splits = True``. One that
    wraps another (``inner``) is as that one.
    """
    inner = getattr(objective, "inner", None)
    return bool(getattr(objective, "splits", False) if inner is None else splits(inner))


def validator_of(objective: Objective) -> Validator | None:
    """The objective itself, or one that it wraps (``inner``); None where labels are used."""
    validator: Any = objective
    while validator is not None and not isinstance(validator, Validator):
        validator = getattr(validator, "inner", None)
    return validator


class LabelLoss:
    """Cross-entropy with the labels, or squared error where they are numbers.

    ``answer`` is the task's: labels of several classes and of tokens have losses of their own.
    """

    teacher: nn.Module | None = None
    splits = True

    def __init__(self, answer: str = "") -> None:
        self.answer = answer

    def __call__(self, model: nn.Module, batch: dict[str, Tensor], step: int) -> Float[Tensor, ""]:
        """The mean over the batch."""
        given = {name: value for name, value in batch.items() if name != "labels"}
        return label_loss(outputs_of(model(**given)), batch["labels"], answer=self.answer)

    def describe(self) -> dict[str, Any]:
        """Nothing: it has no settings."""
        return {}


class TeacherLoss:
    """The loss of distillation, with the recipe's weights; ``answer`` is the task's."""

    splits = True

    def __init__(self, teacher: nn.Module, weights: Distillation, answer: str = "") -> None:
        self.teacher: nn.Module | None = teacher
        self.weights, self.answer = weights, answer

    def __call__(self, model: nn.Module, batch: dict[str, Tensor], step: int) -> Float[Tensor, ""]:
        """See ``distillation_loss``."""
        assert self.teacher is not None
        return distillation_loss(model, self.teacher, batch, self.weights, self.answer)

    def describe(self) -> dict[str, Any]:
        """Nothing: the recipe has the weights."""
        return {}


def usual_loss(answer: str, teacher: nn.Module | None, weights: Distillation) -> Objective:
    """The loss of a task with that answer: of its labels, or of a teacher's answers too."""
    return LabelLoss(answer) if teacher is None else TeacherLoss(teacher, weights, answer)
