"""Predictors trained on the published sums, with the recipes of the published study."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparing.predictors import build_predictor
from sparing.tasks import Task, load_task
from sparing.train import Recipe, TrainResult, train
from sparing.train.metering import StepMeter
from sparing.train.objective import Objective
from sparing.train.values import ValueLoss

if TYPE_CHECKING:
    from sparing.predictors import Predictor

TRANSFORMERS = ("transformer", "xval")
UNCLIPPED = 1e9
# Adam, batches of 32, at most 200 epochs, ended after 10 without a gain of 1e-4.
PLAIN = Recipe(
    epochs=200,
    batch_size=32,
    learning_rate=1e-3,
    weight_decay=0.0,
    warmup_share=0.0,
    schedule="constant_with_warmup",
    max_gradient_norm=UNCLIPPED,
    patience=10,
    least_gain=1e-4,
    precision="float32",
    device="cpu",  # too small for an accelerator to help
)
# AdamW, a warm-up, then a cosine down to a tenth.
WARMED = replace(
    PLAIN,
    weight_decay=4e-3,
    first_moment=0.85,
    warmup_share=0.1,
    schedule="cosine",
    last_rate_share=0.1,
    max_gradient_norm=1.0,
)


def published_recipe(network: str, learning_rate: float | None = None, *, seed: int = 0) -> Recipe:
    """The published code's training of a network of this name; a search chose its rates.

    Source: Mukin, A Predictive Calculator (2025), and its published code. What differs: gradients
    of transformers are clipped by the norm of all of them, there each tensor by its own. The text
    does not give the length of the warm-up; here it is a tenth.
    """
    recipe = WARMED if network in TRANSFORMERS else PLAIN
    return replace(recipe, learning_rate=learning_rate or recipe.learning_rate, seed=seed)


@cache
def value_task(sets: str = "corrected") -> Task:
    """The published training sums as values, with the corrected or the published tests."""
    return load_task("arithmetic", inputs="values", sets=sets)


def fit_predictor(
    name: str,
    options: Mapping[str, Any],
    recipe: Recipe,
    folder: Path,
    *,
    objective: Objective | None = None,
    task: Task | None = None,
    meter: StepMeter | None = None,
    on_progress: Callable[[float, str], None] | None = None,
) -> tuple[Predictor, TrainResult]:
    """Train a predictor in a folder, resumably; the recipe's seed determines its weights."""
    model = build_predictor(name, seed=recipe.seed, **options)
    result = train(
        model,
        task or value_task(),
        recipe,
        output_dir=folder,
        objective=objective or ValueLoss(),
        meter=meter,
        on_progress=on_progress,
    )
    return model.eval(), result
