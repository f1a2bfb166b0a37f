"""The properties of a task that a model needs, and seeded initial weights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, Protocol, runtime_checkable

import torch

from sparing.core.errors import UsageError
from sparing.foreign.kinds import SEVERAL


@runtime_checkable
class TaskShape(Protocol):
    """The sizes that a task gives a model; ``sparing.tasks.Task`` has them all."""

    @property
    def name(self) -> str:
        """The task's public name."""

    @property
    def kind(self) -> Literal["image", "tokens", "values"]:
        """The model's input: images, tokens or values."""

    @property
    def answer(self) -> Literal["class", "labels", "number", "entities", "span", "vector"]:
        """The model's output, such as a class or the first and last token of a span."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the classes."""

    @property
    def tokens(self) -> int:
        """The longest sequence that the model sees."""

    @property
    def vocabulary(self) -> int:
        """How many token numbers there are; 0 for images."""

    @property
    def token_types(self) -> int:
        """How many token types there are: 1, or 2 where a pair's texts differ in type."""

    @property
    def pad_id(self) -> int:
        """The token number that fills up a batch."""

    @property
    def image_size(self) -> int:
        """Pixels along one side; 0 for tokens."""

    @property
    def channels(self) -> int:
        """Colour channels; 0 for tokens."""

    @property
    def patch_size(self) -> int:
        """Pixels along one side of a patch; 0 for tokens."""

    @property
    def tokenizer(self) -> Any:
        """The pretrained tokenizer that made the token numbers, or None."""


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Weights initialised inside depend on ``seed`` alone; the CPU generator is restored after.

    Models are built on the CPU, so no other generator is used or changed.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


def check_kind(model: str, kind: Literal["image", "tokens"], task: TaskShape) -> None:
    """Raise ``UsageError`` unless the task's inputs are those of the model."""
    if task.kind != kind:
        reads = {"image": "images", "tokens": "tokens", "values": "values"}
        hints = {"image": "use vit", "tokens": "use bert", "values": "see sparing list predictors"}
        raise UsageError(
            f"model {model} reads {reads[kind]}, but task {task.name} gives {reads[task.kind]}; "
            f"{hints[task.kind]}"
        )


def check_sizes(model: str, **sizes: int) -> None:
    """Raise ``UsageError`` for a size below 1, or heads that do not divide the width."""
    for name, value in sizes.items():
        if value < 1:
            raise UsageError(f"model {model}: {name} must be at least 1; got {value}")
    if sizes["width"] % sizes.get("heads", 1):
        raise UsageError(
            f"model {model}: {sizes['heads']} heads do not divide the width {sizes['width']}"
        )


def image_config(config: Any) -> Any:
    """The image part of a configuration; a model with two towers has a separate one."""
    return getattr(config, "vision_config", None) or config


def label_names(task: TaskShape) -> dict[str, Any]:
    """The configuration's class names, in both directions; whether several labels may hold."""
    several = {"problem_type": SEVERAL} if task.answer == "labels" else {}
    return several | {
        "id2label": dict(enumerate(task.labels)),
        "label2id": {label: number for number, label in enumerate(task.labels)},
    }
