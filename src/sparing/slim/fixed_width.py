"""Fine-tuning at fixed width, once a plan is chosen: in float32, or for INT8 (dense too)."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sparing.core.errors import UsageError
from sparing.layers.plan import Plan
from sparing.slim.models import FOLLOW, Models
from sparing.train import TrainResult, train
from sparing.train.elastic import Draw, ElasticLoss
from sparing.train.objective import Objective, TeacherLoss
from sparing.train.quantised import Int8Loss
from sparing.transfer.adaptive import AdaptiveClassifier
from sparing.transfer.dropout import drop_nothing, without_dropout
from sparing.transfer.families import require_classifier
from sparing.transfer.freezing import freeze
from sparing.transfer.opening import open_model

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# The model is nearly trained: half the learning rate of distillation.
RATE_SHARE = 0.5


def train_slim(
    models: Models,
    model: AdaptiveClassifier,
    plan: Plan,
    folder: Path,
    epochs: int,
    rate: float | None = None,
    *,
    rounded: bool,
) -> TrainResult:
    """Freeze a plan of ``model``, so that its widths are final, and distil the rest.

    All its exits are trained; embeddings cost no FLOPs and are not. A training in ``folder`` is
    continued, or read back if it has ended. ``rate`` is the learning rate, by default half of that
    of distillation. With ``rounded`` the training imitates INT8.
    """
    drop_nothing(model.config)
    frozen = freeze(model, plan)
    whole = Draw((1.0,), (1.0,), (plan.tokens_kept,), plan.tokens_after)
    objective: Objective = ElasticLoss(models.baseline(), FOLLOW, whole, models.seed)
    if rounded:
        objective = Int8Loss(objective)
    frozen.embeddings.requires_grad_(False)
    return _train(models, frozen, objective, folder, epochs, rate)


def train_dense(
    models: Models, folder: Path, epochs: int, rate: float | None = None
) -> TrainResult:
    """Train the dense baseline for INT8: it follows its float32 form for as many steps."""
    baseline = models.baseline()
    model = without_dropout(baseline)
    if model is baseline:
        model = copy.deepcopy(baseline)
    model.base_model.embeddings.requires_grad_(False)
    objective = Int8Loss(TeacherLoss(baseline, FOLLOW))
    return _train(models, model, objective, folder, epochs, rate)


def trained_slim(folder: Path) -> AdaptiveClassifier:
    """The result of ``train_slim``: plain float32, ready to be exported and quantised."""
    model = open_model(str(_finished(folder)))
    assert isinstance(model, AdaptiveClassifier)
    model.eval()
    return model


def trained_dense(folder: Path) -> PreTrainedModel:
    """The result of ``train_dense``."""
    return require_classifier(open_model(str(_finished(folder)))).eval()


def _train(
    models: Models,
    model: PreTrainedModel,
    objective: Objective,
    folder: Path,
    epochs: int,
    rate: float | None,
) -> TrainResult:
    """Train without dropout: the model is nearly trained, and there are few steps."""
    recipe = replace(
        models.recipe,
        epochs=epochs,
        learning_rate=rate or RATE_SHARE * models.recipe.learning_rate,
        distillation=FOLLOW,
        patience=None,
    )
    return train(
        model,
        models.taught_on,
        recipe,
        output_dir=folder,
        objective=objective,
    )


def _finished(folder: Path) -> Path:
    if not (folder / "result.json").is_file():
        raise UsageError(f"the {folder.name} model of this run has not been trained to its end yet")
    return folder
