"""How a model is trained, as frozen values that can be stored, compared and varied."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from sparing.core.errors import UsageError

Precision = Literal["auto", "float32", "bfloat16", "float16"]
PRECISIONS = ("auto", "float32", "bfloat16", "float16")
SCHEDULES = ("linear", "cosine", "constant_with_warmup")


@dataclass(frozen=True)
class Distillation:
    """How strongly a teacher is followed; used only where one is given.

    The loss is ``labels`` times cross-entropy, plus ``outputs`` times the divergence from the
    teacher's answers, both softened by ``temperature``, plus ``hidden_states`` times the mean
    squared distance of the hidden states of matched layers.
    """

    labels: float = 0.5
    outputs: float = 0.5
    hidden_states: float = 1.0
    temperature: float = 2.0

    def __post_init__(self) -> None:
        for name in ("labels", "outputs", "hidden_states"):
            if getattr(self, name) < 0:
                raise UsageError(f"distillation.{name} must not be negative")
        if self.temperature <= 0:
            raise UsageError("distillation.temperature must be above 0")


@dataclass(frozen=True)
class Recipe:
    """One way to train: AdamW, warm-up, then a falling learning rate.

    ``warmup_share`` is the share of all steps in which the rate rises; ``schedule`` is "linear",
    "cosine" or "constant_with_warmup"; ``patience`` ends training after so many validations
    without a better one (None: never); ``precision`` "auto" is bfloat16 on accelerators that have
    it and float32 elsewhere; ``device`` "auto" is the accelerator where there is one;
    a checkpoint is written at each validation and after each ``save_every_steps``;
    ``log_every_steps`` 0 logs the loss once an epoch; ``trackers`` are the names of Trainer's own
    (tensorboard, trackio, wandb, ...).
    """

    epochs: int = 20
    batch_size: int = 64
    learning_rate: float = 2e-3
    weight_decay: float = 0.01
    warmup_share: float = 0.1
    schedule: str = "linear"
    max_gradient_norm: float = 1.0
    patience: int | None = None
    seed: int = 0
    precision: Precision = "auto"
    device: Literal["auto", "cpu"] = "auto"
    evaluate_every_epochs: int = 1
    save_every_steps: int = 0
    log_every_steps: int = 0
    distillation: Distillation = field(default_factory=Distillation)
    trackers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "evaluate_every_epochs"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("learning_rate", "max_gradient_norm"):
            if not getattr(self, name) > 0:
                raise UsageError(f"{name} must be above 0, got {getattr(self, name)}")
        if not 0 <= self.warmup_share < 1:
            raise UsageError(f"warmup_share must be in [0, 1), got {self.warmup_share}")
        for name in ("weight_decay", "log_every_steps", "save_every_steps", "seed"):
            if getattr(self, name) < 0:
                raise UsageError(f"{name} must not be negative, got {getattr(self, name)}")
        if self.patience is not None and self.patience < 1:
            raise UsageError(f"patience must be at least 1 or None, got {self.patience}")
        _check_choice("precision", self.precision, PRECISIONS)
        _check_choice("schedule", self.schedule, SCHEDULES)
        _check_choice("device", self.device, ("auto", "cpu"))


def _check_choice(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise UsageError(f"{name} must be {', '.join(known[:-1])} or {known[-1]}, got {value!r}")
