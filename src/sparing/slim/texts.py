"""Texts without labels as a task: the dense model's answers take the place of labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from sparing.core.errors import DataError, UsageError
from sparing.experiment.run import read_tensors, save_tensors
from sparing.measure.calibration import examples_needed
from sparing.slim.inputs import answers_to
from sparing.tasks import Examples, Task
from sparing.tasks.shared.task import UNLABELLED
from sparing.tasks.texts import parts_of, read_texts, task_of_texts

if TYPE_CHECKING:
    from sparing.slim.inputs import Dense

FILE = "dense-answers.safetensors"
AGREEMENT, COSINE = "agreement", "cosine"
# Metrics for which the dense model's answers take the place of labels.
LABELLESS = (AGREEMENT, COSINE)
CALIBRATE = "calibrate"


def texts_task(
    texts: Any,
    model: str,
    *,
    options: Mapping[str, Any],
    seed: int,
    hold_out: str,
    changed: float,
    delta: float,
) -> Task:
    """Your texts as a task for a fine-tuned model, in four disjoint parts.

    ``options`` are those of ``read_texts``. The task is scored by its labels if all held-out rows
    have one, else by agreement with the dense model. ``changed`` is the share of answers to
    certify: it decides how many rows calibration needs. Raises ``DataError`` and ``UsageError`` as
    the reader does, too few rows among them.
    """
    try:
        read = read_texts(texts, **options)
    except TypeError as error:
        raise UsageError(f"task_options: {error}") from error
    parts = parts_of(read, seed=seed, hold_out=hold_out, needed=examples_needed(changed, delta))
    task = task_of_texts(parts, model)
    if task.answer == "vector":
        return replace(task, metric=COSINE, metrics=(COSINE,))
    return task if labelled(task) else replace(task, metric=AGREEMENT, metrics=(AGREEMENT,))


def labelled(task: Task) -> bool:
    """Whether every held-out row has a label."""
    held = (examples for name, examples in task.splits.items() if name != "train")
    return not any(bool((examples.labels == UNLABELLED).any()) for examples in held)


def answer_splits(model: Dense, task: Task, folder: Path) -> dict[str, float]:
    """Store the dense model's answers to all splits in a run's folder.

    Returns the shares of the classes; vectors have none.

    Raises ``DataError`` for answers that are not finite.
    """
    answers: dict[str, Tensor] = {}
    model.eval()
    for name, examples in task.splits.items():
        answers[name] = answers_to(task, examples, model)
        broken = (~answers[name].isfinite()).any(1).nonzero()
        if len(broken):
            raise DataError(
                f"the dense model's answer to {name} text {int(broken[0]) + 1} is not a finite "
                "number: the model is damaged, or it overflows"
            )
        empty = (answers[name] == 0).all(1).nonzero()
        if task.answer == "vector" and len(empty):
            raise DataError(
                f"the dense model's vector of {name} text {int(empty[0]) + 1} has the length 0: it "
                "has no cosine"
            )
    save_tensors(folder / FILE, answers)
    if task.answer == "vector":
        return {}
    counts = torch.bincount(answers["test"].argmax(-1), minlength=task.classes).double()
    shares = (counts / counts.sum()).tolist()
    return dict(zip(task.labels, shares, strict=True))


def answered(task: Task, folder: Path, seed: int) -> Task:
    """The task with the dense model's answers as labels, from a run's folder.

    Held-out rows have its class, or its vector. Rows to train on have a class sampled from its
    probabilities, for the importance of heads: the loss against the probabilities themselves has no
    gradient.
    Distillation follows the probabilities and must not use these labels. Raises ``UsageError``
    before the answers are stored, and ``DataError`` where their file is damaged.
    """
    path = folder / FILE
    if not path.is_file():
        raise UsageError("the dense model has not answered the texts yet: an earlier step failed")
    logits = read_tensors(path)
    generator = torch.Generator().manual_seed(seed)
    splits: dict[str, Examples] = {}
    for name, examples in task.splits.items():
        if task.answer == "vector":
            splits[name] = replace(examples, labels=logits[name])
            continue
        classes = logits[name].argmax(-1)
        if name == "train":
            shares = logits[name].double().softmax(-1)
            classes = torch.multinomial(shares, 1, generator=generator)[:, 0]
        splits[name] = replace(examples, labels=classes)
    train, validation, test = (splits.pop(name) for name in ("train", "validation", "test"))
    return replace(task, train=train, validation=validation, test=test, more_tests=splits)


def without_labels(task: Task) -> Task:
    """The task whose training rows have no labels, so that distillation follows the teacher."""
    unknown = torch.full((len(task.train),), UNLABELLED)
    return replace(task, train=replace(task.train, labels=unknown))
