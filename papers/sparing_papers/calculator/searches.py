"""The search of a family's learning rate: what was tried, how well it validated, what it took."""

from __future__ import annotations

from pathlib import Path

from sparing.calculator.regression import value_task
from sparing.core.record import Labels, Record
from sparing.experiment.cells.rates import DIVERGED, best_rate
from sparing.experiment.cells.training import Trained, train_metered
from sparing.experiment.run import Cell, slug
from sparing.measure.machine import threads
from sparing.predictors import build_predictor
from sparing.train.values import ValueLoss
from sparing_papers.calculator.arms import EVERY, ValueArm
from sparing_papers.calculator.options import Options

SEED = 1000  # not among the study's
# Seconds of one core for 200 epochs of the smallest network; others by their weights.
SMALLEST_S, PER_WEIGHT_S = 15.0, 4e-4


def search_cells(options: Options, folder: Path) -> list[Cell]:
    """A cell for each variant with a searched rate: one training a rate, with another seed."""
    return [_cell(options, folder, name) for name in options.searches]


def search_key(name: str) -> str:
    """The key of the cell that searches a variant's rate."""
    return f"search/{slug(name)}"


def rate_of(options: Options, folder: Path, name: str) -> float:
    """The rate of a variant: its own, or the one that validates best in the search that it names.

    Trainings of the search that are missing are made. Raises ``NotFinite`` where all diverge.
    """
    arm = EVERY[name]
    return best_of(options, folder, arm.searched) if arm.searched else arm.rate


def best_of(options: Options, folder: Path, name: str) -> float:
    """The rate of a search that validates best; what is missing is trained."""
    return best_rate(
        EVERY[name].rates,
        lambda rate: _train(options, folder, name, rate),
        lambda rate: _training_dir(folder, name, rate),
    )


def objective(arm: ValueArm) -> ValueLoss:
    """The loss; the benchmark is relative to what the answer 0 errs on the training sums."""
    if arm.loss == "squared":
        return ValueLoss()
    truth = value_task().train.labels.abs()
    relative = (truth / truth.clamp(min=1)).mean()
    return ValueLoss(arm.loss, {"mean": float(truth.mean()), "relative": float(relative)})


def weight_of(arm: ValueArm, epochs: int) -> float:
    """About how many seconds of one core a training takes."""
    model = build_predictor(arm.network, **arm.options)
    weights: int = sum(parameter.numel() for parameter in model.parameters())
    return (SMALLEST_S + PER_WEIGHT_S * weights) * epochs / 200


def _cell(options: Options, folder: Path, name: str) -> Cell:
    arm = EVERY[name]

    def do() -> list[Record]:
        with threads(options.thread_count):
            best = best_of(options, folder, name)
            tried = [row for rate in arm.rates for row in _tried(options, folder, name, rate)]
        labels: Labels = {"arm": name, "seed": SEED}
        return [*tried, Record("search_rate", best, "", "measured", labels, count=len(arm.rates))]

    weight = len(arm.rates) * weight_of(arm, options.epochs)
    return Cell(search_key(name), do, weight=weight, beside=True)


def _tried(options: Options, folder: Path, name: str, rate: float) -> list[Record]:
    """What a training at one rate came to; a loss without a value is of one that diverged."""
    labels: Labels = {"arm": name, "seed": SEED, "rate": rate}
    if (_training_dir(folder, name, rate) / DIVERGED).exists():
        return [Record("search_loss", None, "", "measured", labels)]
    result = _train(options, folder, name, rate).result
    return [
        Record("search_loss", result.validation_loss, "", "measured", labels),
        Record("search_time_s", result.train_time_s, "s", "measured", labels),
        Record("search_epochs", float(len(result.curve)), "", "measured", labels),
    ]


def _train(options: Options, folder: Path, name: str, rate: float) -> Trained:
    """Train with the seed of searches, or read a finished training; an interrupted one goes on."""
    arm = EVERY[name]
    return train_metered(
        build_predictor(arm.network, seed=SEED, **arm.options),
        value_task(),
        arm.recipe(SEED, options.epochs, rate),
        _training_dir(folder, name, rate),
        options.watts_per_core,
        objective=objective(arm),
    )


def _training_dir(folder: Path, name: str, rate: float) -> Path:
    """The folder of one training of a search."""
    return folder / "models" / f"search-{slug(name)}-{rate:g}"
