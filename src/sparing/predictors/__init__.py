"""One file is one network that predicts the value of a sum from its numbers and operator codes.

These are the architectures of Mukin, A Predictive Calculator (2025), and their baselines.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparing.core.folder import Folder

if TYPE_CHECKING:
    from sparing.predictors._model import ParameterCounts as ParameterCounts
    from sparing.predictors._model import Predictor as Predictor
    from sparing.predictors._model import parameter_counts as parameter_counts

PREDICTORS = Folder("sparing.predictors", "predictor")
_HOMES = {"ParameterCounts": "_model", "Predictor": "_model", "parameter_counts": "_model"}
__all__ = ["PREDICTORS", "build_predictor", "load_predictor", "names", *_HOMES]


def names() -> list[str]:
    """The names of all predictors, sorted."""
    return PREDICTORS.names()


def build_predictor(name: str, *, seed: int = 0, **options: Any) -> Predictor:
    """A predictor with random weights, which follow from the seed alone.

    ``options`` are the keyword arguments of the network in the file of that name. Raises
    ``UsageError`` for unknown names and options.
    """
    from sparing.models.shared.quiet import quiet
    from sparing.models.shared.shape import seeded
    from sparing.predictors._model import Predictor, PredictorConfig

    with quiet(), seeded(seed):
        model: Predictor = Predictor(PredictorConfig(network=name, options=options)).eval()
    return model


def load_predictor(folder: str | Path) -> Predictor:
    """A predictor saved with ``save_pretrained``.

    Raises ``CheckpointError`` for a folder without one, or with a damaged one.
    """
    from sparing.predictors._model import open_predictor

    return open_predictor(Path(folder))


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"sparing.predictors.{_HOMES[name]}"), name)
