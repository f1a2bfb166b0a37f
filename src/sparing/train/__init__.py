"""Recipes, training on transformers' Trainer, distillation, and evaluation."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparing.train.evaluation import Evaluation as Evaluation
    from sparing.train.evaluation import evaluate as evaluate
    from sparing.train.recipe import Auxiliary as Auxiliary
    from sparing.train.recipe import Distillation as Distillation
    from sparing.train.recipe import Recipe as Recipe
    from sparing.train.recipe import adaptive_recipe as adaptive_recipe
    from sparing.train.recipe import default_recipe as default_recipe
    from sparing.train.trainer import TrainResult as TrainResult
    from sparing.train.trainer import train as train

_HOMES = {
    "Auxiliary": "sparing.train.recipe",
    "Distillation": "sparing.train.recipe",
    "Evaluation": "sparing.train.evaluation",
    "Recipe": "sparing.train.recipe",
    "TrainResult": "sparing.train.trainer",
    "adaptive_recipe": "sparing.train.recipe",
    "default_recipe": "sparing.train.recipe",
    "evaluate": "sparing.train.evaluation",
    "train": "sparing.train.trainer",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
