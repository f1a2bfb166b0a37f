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
from sparing.slim.answer import Answer, Entities, Number, OneClass, SeveralLabels, Span, Vector
from sparing.slim.inputs import answers_to
from sparing.tasks import Examples, Task
from sparing.tasks.shared.questions import each_question, each_window, windows_note
from sparing.tasks.shared.task import UNLABELLED
from sparing.tasks.texts import parts_of, read_texts, task_of_texts

if TYPE_CHECKING:
    from sparing.slim.inputs import Dense

FILE = "dense-answers.safetensors"
# Metrics for which the dense model's answers take the place of labels.
LABELLESS = tuple(kind.metric for kind in (OneClass, SeveralLabels, Number, Entities, Vector))
CALIBRATE = "calibrate"
BY_ANSWER: Mapping[str, type[Answer]] = {
    "labels": SeveralLabels,
    "number": Number,
    "entities": Entities,
    "span": Span,
}


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
    if task.metric in LABELLESS or labelled(task):
        return task
    return replace(task, metric=OneClass.metric, metrics=(OneClass.metric,))


def followed(task: Task) -> Task:
    """A labelled task of other answers than one class, as texts without labels are.

    The dense model's answers take the labels' place to train, choose and certify by. The labels of
    the test split score every form at the end, by the other ``metrics``. A question is one input,
    however many windows its passage has. Raises ``UsageError`` for a test split without a score.
    """
    task.require_labels("test")
    if task.answer == "span":
        task = _by_question(task)
    metric = BY_ANSWER[task.answer].metric
    return replace(task, metric=metric, metrics=(metric, *task.metrics), unlabelled=True)


def _by_question(task: Task) -> Task:
    """The task with held-out questions as single inputs, and windows to train on as inputs."""
    splits, notes = dict[str, Examples](), [*task.notes]
    for name, examples in task.splits.items():
        splits[name] = each_window(examples) if name == "train" else each_question(examples)
        if name != "train":
            notes += windows_note(name, splits[name], "questions")
    train, validation, test = (splits.pop(name) for name in ("train", "validation", "test"))
    whole = replace(task, train=train, validation=validation, test=test, more_tests=splits)
    return replace(whole, notes=tuple(notes))


def labelled(task: Task) -> bool:
    """Whether every held-out row has a label."""
    held = (examples for name, examples in task.splits.items() if name != "train")
    return not any(bool((examples.labels == UNLABELLED).any()) for examples in held)


def answer_splits(model: Dense, task: Task, folder: Path, kind: Answer) -> dict[str, float]:
    """Store the dense model's answers to all splits in a run's folder.

    Returns the shares of classes or labels; other answers have none.

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
        fault = kind.fault(answers[name])
        if fault is not None:
            raise DataError(f"the dense model's answer to {name} text {fault[0] + 1} {fault[1]}")
    save_tensors(folder / FILE, answers)
    return kind.shares(answers["test"], task.labels)


def answered(task: Task, folder: Path, seed: int, kind: Answer) -> Task:
    """The task with the dense model's answers as labels, from a run's folder.

    Rows to train on have labels that are sampled, for the importance of heads. Distillation follows
    the answers themselves and must not use these labels. Raises ``UsageError``
    before the answers are stored, and ``DataError`` where their file is damaged.
    """
    path = folder / FILE
    if not path.is_file():
        raise UsageError("the dense model has not answered the texts yet: an earlier step failed")
    logits = read_tensors(path)
    generator = torch.Generator().manual_seed(seed)
    splits: dict[str, Examples] = {}
    for name, examples in task.splits.items():
        given = logits[name]
        labels = kind.sampled(given, generator) if name == "train" else kind.as_labels(given)
        splits[name] = replace(examples, labels=labels, passages=None)
    train, validation, test = (splits.pop(name) for name in ("train", "validation", "test"))
    alone = replace(task, metrics=(task.metric,))  # others want the labels that are replaced
    return replace(alone, train=train, validation=validation, test=test, more_tests=splits)


def without_labels(task: Task) -> Task:
    """The task whose training rows have no labels, so that distillation follows the teacher."""
    unknown = torch.full((len(task.train),), UNLABELLED)
    return replace(task, train=replace(task.train, labels=unknown))
