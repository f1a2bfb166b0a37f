"""A task's labels in the order of a model's, so that a model from elsewhere can be evaluated."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sparing.experiment.inputs.folder import configuration

if TYPE_CHECKING:
    from torch import Tensor

    from sparing.tasks import Task


def in_models_order(task: Task, model: str) -> Task:
    """The task with the labels of a model's folder, where they are its own and perhaps more.

    This is for entities and several labels: their files have no order of labels. Other tasks are
    returned as they are.
    """
    named = configuration(model).get("id2label") if model else None
    if task.answer not in ("entities", "labels") or not isinstance(named, dict):
        return task
    names = tuple(str(named[number]) for number in sorted(named, key=int))
    if names == task.labels or not {*names} >= {*task.labels} or len({*names}) < len(names):
        return task
    numbers = [names.index(label) for label in task.labels]
    splits = {
        name: replace(split, labels=_renumbered(split.labels, numbers, len(names), task.answer))
        for name, split in task.splits.items()
    }
    train, validation, test = (splits.pop(name) for name in ("train", "validation", "test"))
    return replace(
        task, labels=names, train=train, validation=validation, test=test, more_tests=splits
    )


def _renumbered(labels: Tensor, numbers: list[int], count: int, answer: str) -> Tensor:
    """Labels by their new numbers; those below 0 are no labels and stay."""
    import torch

    if answer == "labels":
        flags = labels.new_zeros(len(labels), count)
        flags[:, numbers] = labels
        return flags
    return torch.where(labels < 0, labels, torch.tensor(numbers)[labels.clamp(min=0)])
