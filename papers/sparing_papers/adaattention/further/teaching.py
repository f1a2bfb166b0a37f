"""A first stage for variants that lose the dense attention: each layer imitates the dense one.

Projections that start at random in a trained encoder break every layer at once, and a few hundred
steps on labels alone do not mend that. Here each layer learns alone, on the dense model's inputs,
to give what the dense layer gives; the usual training follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparing.core.errors import UsageError, listed, nearest
from sparing.tasks import Task
from sparing.train import Auxiliary, Recipe, TrainResult, train
from sparing_papers.adaattention.names import TAUGHT
from sparing_papers.long_range.transfer import LayerwiseLoss, teacher_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def require_taught(names: Sequence[str], swapped: Sequence[str], arms: Sequence[str]) -> None:
    """Raise ``UsageError`` for a name that is none of the ``swapped`` variants, or not run.

    ``arms`` are the variants of the run.
    """
    for name in names:
        if name not in swapped:
            raise UsageError(
                f"taught: {name!r} is no variant with another attention in the dense model's "
                f"layers{nearest(name, swapped)}; they are {listed(swapped)}"
            )
        if name not in arms:
            raise UsageError(f"taught: {name} is not among the variants of this run")


def layer_recipe(recipe: Recipe, epochs: int, rate: float) -> Recipe:
    """The recipe of the first stage: its length and rate, float32, without losses of scores."""
    return replace(
        recipe,
        epochs=epochs,
        learning_rate=rate,
        weight_decay=0.0,
        mechanism_rate_factor=1.0,
        precision="float32",
        auxiliary=Auxiliary(weight=0.0, last_weight=0.0),
    )


def teach(
    model: PreTrainedModel, dense: PreTrainedModel, task: Task, recipe: Recipe, folder: Path
) -> TrainResult:
    """Let each swapped layer imitate the dense model's, in place."""
    return train(model, task, recipe, output_dir=folder, objective=LayerwiseLoss(teacher_of(dense)))


def with_stage(first: TrainResult, later: TrainResult) -> TrainResult:
    """The later training, charged with the steps and the time of the first stage."""
    return replace(
        later,
        train_time_s=first.train_time_s + later.train_time_s,
        steps=first.steps + later.steps,
        examples_seen=first.examples_seen + later.examples_seen,
    )


def stage_facts(first: TrainResult) -> dict[str, Any]:
    """Steps of the first stage, and after each of its epochs the mean squared relative error."""
    errors = [float(entry["train_loss"]) for entry in first.curve]
    scores = [float(entry["validation_score"]) for entry in first.curve]
    return {"steps": first.steps, "errors": errors, "validation_scores": scores}


def name_of_taught(arm: str) -> str:
    """The name of a variant with taught layers."""
    return f"{arm}{TAUGHT}"
