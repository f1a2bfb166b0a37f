"""Training settings as frozen values that can be stored, compared and varied."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from sparing.core.checks import Count, NotNegative, Positive, at_least, check_fields, within
from sparing.core.errors import UsageError

Precision = Literal["auto", "fast", "float32", "bfloat16", "float16"]
PRECISIONS = ("auto", "fast", "float32", "bfloat16", "float16")
SCHEDULES = ("linear", "cosine", "constant_with_warmup")
# Trainer's names for them.
OPTIMIZERS = {"adamw": "adamw_torch_fused", "sgd": "sgd", "rmsprop": "rmsprop"}


@dataclass(frozen=True)
class Distillation:
    """The weights of a teacher's losses; used only where one is given.

    The loss has three terms. ``labels`` weighs cross-entropy. ``outputs`` weighs the divergence
    from the teacher's answers, both softened by ``temperature``. ``hidden_states`` weighs the mean
    squared distance of the hidden states of matched layers.
    """

    labels: Annotated[float, at_least(0)] = 0.5
    outputs: Annotated[float, at_least(0)] = 0.5
    hidden_states: Annotated[float, at_least(0)] = 1.0
    temperature: Positive = 2.0

    def __post_init__(self) -> None:
        check_fields(self, "distillation")


@dataclass(frozen=True)
class Auxiliary:
    """The weight of the losses that mechanisms report (``auxiliary_loss``), if they do.

    The weight is 0 for ``warmup_share`` of all steps, then ``weight``; over the last ``rise_share``
    it rises evenly to ``last_weight``. With a ``baseline``, the dense model's validation score,
    training ends when the score falls below ``floor_share`` of it after being above. The weights
    are then those of the last validation above, which costs least, not those of the best.

    Source: Balajee, "Adaptive Attention Mechanisms for Efficient Transformer Models", section II.C.
    What differs: 10 %, 90 % and 5 % of the epochs are 105 %; the last 5 % are inside the 90.
    """

    weight: Annotated[float, at_least(0)] = 0.01
    last_weight: Annotated[float, at_least(0)] = 0.05
    warmup_share: Annotated[float, at_least(0)] = 0.1
    rise_share: Annotated[float, at_least(0)] = 0.05
    baseline: float | None = None
    floor_share: Annotated[float, within(0, 1, ends="(]")] = 0.95

    def __post_init__(self) -> None:
        check_fields(self, "auxiliary")
        if self.warmup_share + self.rise_share > 1:
            raise UsageError("auxiliary.warmup_share and rise_share exceed 1 together")

    def weight_at(self, step: int, steps: int) -> float:
        """The weight in step ``step``, from 0, of ``steps``; the last has ``last_weight``."""
        if step < self.warmup_share * steps:
            return 0.0
        rest = 1 - (step + 1) / steps
        if not self.rise_share or rest >= self.rise_share:
            return self.weight
        return self.last_weight + (self.weight - self.last_weight) * rest / self.rise_share


@dataclass(frozen=True)
class Recipe:
    """Training settings: warm-up, then a falling learning rate.

    ``warmup_share`` is the share of all steps in which the rate rises. ``schedule`` is "linear",
    "cosine" (``last_rate_share`` of the rate is left at its end) or "constant_with_warmup".
    Parameters of mechanisms learn at ``mechanism_rate_factor`` times the rate, which helps where
    everything else is trained already. ``optimizer`` is "adamw" (without decay: Adam;
    ``first_moment`` is its beta 1), "sgd" or "rmsprop". ``patience`` ends training after that many
    validations that were not better than the best one by more than ``least_gain`` (None: never).
    ``precision`` "auto" is bfloat16 on accelerators that have it and float32 elsewhere, "fast" also
    on processors that multiply in it. ``device`` "auto" is the accelerator where there is one. A
    checkpoint is written at each validation and after each ``save_every_steps``;
    ``log_every_steps`` 0 logs the loss once an epoch. ``trackers`` are the names of Trainer's own
    (tensorboard, trackio, wandb, ...).
    """

    epochs: Count = 20
    batch_size: Count = 64
    learning_rate: Positive = 2e-3
    weight_decay: Annotated[float, at_least(0)] = 0.01
    warmup_share: Annotated[float, within(0, 1, ends="[)")] = 0.1
    schedule: str = "linear"
    max_gradient_norm: Positive = 1.0
    patience: Count | None = None
    least_gain: Annotated[float, at_least(0)] = 0.0
    optimizer: str = "adamw"
    first_moment: Annotated[float, within(0, 1, ends="[)")] = 0.9
    last_rate_share: Annotated[float, within(0, 1, ends="[)")] = 0.0
    mechanism_rate_factor: Positive = 1.0
    seed: NotNegative = 0
    precision: Precision = "auto"
    device: Literal["auto", "cpu"] = "auto"
    evaluate_every_epochs: Count = 1
    save_every_steps: NotNegative = 0
    log_every_steps: NotNegative = 0
    distillation: Distillation = field(default_factory=Distillation)
    auxiliary: Auxiliary = field(default_factory=Auxiliary)
    trackers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_fields(self)
        if self.first_moment != 0.9 and self.optimizer != "adamw":
            raise UsageError("first_moment belongs to the optimizer adamw")
        if self.last_rate_share and self.schedule != "cosine":
            raise UsageError("last_rate_share belongs to the schedule cosine")
        _check_choice("precision", self.precision, PRECISIONS)
        _check_choice("schedule", self.schedule, SCHEDULES)
        _check_choice("optimizer", self.optimizer, tuple(OPTIMIZERS))
        _check_choice("device", self.device, ("auto", "cpu"))


def adaptive_recipe(baseline: float | None = None, *, epochs: int = 4) -> Recipe:
    """The paper's recipe for ``adaptive`` attention: rate 5e-5, batches of 32, 3 to 5 epochs.

    ``baseline`` is the dense model's validation score; without one, training does not end early.
    """
    return Recipe(
        epochs=epochs,
        batch_size=32,
        learning_rate=5e-5,
        auxiliary=Auxiliary(baseline=baseline),
    )


def default_recipe(task: str, *, pretrained: bool = False) -> Recipe:
    """A recipe that works for a task's name, with the models' default sizes.

    Expected seconds of training on one thread of a 2020s server, and test accuracy with dense
    attention: digits 4 s, 0.96; listops 50 s, 0.36. Of fashion-mnist (20,000 images) 30 s, 0.83; of
    sst2 25 s, 0.80. Pretrained models get few epochs at a low rate; other tasks the defaults.
    """
    if pretrained:
        return Recipe(epochs=3, batch_size=32, learning_rate=5e-5, patience=2)
    name = task.replace("_", "-")
    known = {
        "digits": Recipe(epochs=15, learning_rate=5e-3),
        "listops": Recipe(epochs=6, learning_rate=1e-3),
        "fashion-mnist": Recipe(epochs=6, learning_rate=3e-3),
        "sst2": Recipe(epochs=2, batch_size=128, learning_rate=1e-3),
    }
    return known.get(name, Recipe())


def _check_choice(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise UsageError(f"{name} must be {', '.join(known[:-1])} or {known[-1]}; got {value!r}")
