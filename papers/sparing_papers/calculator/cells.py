"""The cells of the calculator study: searches, one training each, and baselines without one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from sparing.calculator import Calculator
from sparing.calculator.network import SHIPPED
from sparing.calculator.regression import value_task
from sparing.core.record import Labels, Record, measured
from sparing.experiment.cells.rates import Tuned, training_cell
from sparing.experiment.cells.training import Trained
from sparing.experiment.run import Cell, slug
from sparing.predictors import build_predictor, parameter_counts
from sparing.predictors.gated_sum import Network as GatedSum
from sparing.tasks.arithmetic import as_values
from sparing.tasks.shared.expressions import Expression
from sparing.tasks.shared.published import published
from sparing_papers.calculator.arms import EVERY
from sparing_papers.calculator.evaluation import Predict, probe_records, score_records
from sparing_papers.calculator.longer import longer_records
from sparing_papers.calculator.names import (
    CALCULATOR,
    FIXED,
    LINEAR,
    RECURRENCE,
    TWO_WEIGHTS,
    ZERO,
)
from sparing_papers.calculator.options import Options
from sparing_papers.calculator.searches import (
    objective,
    rate_of,
    search_cells,
    search_key,
    weight_of,
)


def arm_cell(options: Options, folder: Path, name: str, seed: int) -> Cell:
    """Train one variant with one seed, evaluate it, and probe its answers."""
    arm = EVERY[name]

    def tuned() -> Tuned:
        return Tuned(
            lambda seed: build_predictor(arm.network, seed=seed, **arm.options),
            value_task(),
            lambda seed, rate: arm.recipe(seed, options.epochs, rate),
            (rate_of(options, folder, name),),
            lambda seed, rate: place_of(folder, name, seed),
            options.watts_per_core,
            lambda seed: objective(arm),
        )

    def record(trained: Trained) -> list[Record]:
        labels: Labels = {"arm": name, "seed": seed}
        model: Any = trained.model.eval()
        records = score_records(model.predict, labels) + probe_records(model, labels)
        if RECURRENCE in options.questions:
            records += longer_records(model, labels)
        counts = parameter_counts(model, arm.counted)
        for of, count in (("architecture", counts.architecture), ("optimizer", counts.optimizer)):
            records += measured({**labels, "of": of}, "numbers", parameters=count)
        records += measured(labels, "", learning_rate=trained.recipe.learning_rate)
        return [*records, *trained.spent(labels)]

    cell = training_cell(
        f"arm/{slug(name)}/{seed}",
        tuned,
        seed,
        record,
        thread_count=options.thread_count,
        weight=weight_of(arm, options.epochs),
    )
    needs = (search_key(arm.searched),) if arm.searched else ()
    return replace(cell, beside=True, needs=needs)


def place_of(folder: Path, name: str, seed: int) -> Path:
    """The folder of one training."""
    return folder / "models" / f"{slug(name)}-{seed}"


def fixed_cells() -> list[Cell]:
    """What needs no training here, each once."""
    makers = {
        TWO_WEIGHTS: _two_weights,
        ZERO: lambda: (lambda sums: [0.0] * len(sums), 0),
        LINEAR: _linear,
        CALCULATOR: _calculator,
    }

    def cell(name: str) -> Cell:
        def do() -> list[Record]:
            predict, weights = makers[name]()
            labels: Labels = {"arm": name, "seed": None}
            sizes: Labels = {**labels, "of": "architecture"}
            size = Record("parameters", weights, "numbers", "measured", sizes)
            return [size, *score_records(predict, labels)]

        return Cell(f"fixed/{slug(name)}", do, weight=30.0 if name == CALCULATOR else 0.5)

    return [cell(name) for name in FIXED]


def _two_weights() -> tuple[Predict, int]:
    sums = published()["train"]
    network = GatedSum().double()
    truth = torch.tensor([float(expression.value) for expression in sums], dtype=torch.float64)
    network.solve(as_values(sums), truth)

    def predict(expressions: Sequence[Expression]) -> list[float | None]:
        with torch.inference_mode():
            return list(network(as_values(expressions).double()).tolist())

    return predict, 2


def _linear() -> tuple[Predict, int]:
    """Least squares on the fifteen slots and a constant."""
    sums = published()["train"]

    def rows(expressions: Sequence[Expression]) -> torch.Tensor:
        values = as_values(expressions).double()
        return torch.cat([values, torch.ones_like(values[:, :1])], 1)

    truth = torch.tensor([float(expression.value) for expression in sums], dtype=torch.float64)
    # slots that never change in training: the smallest weights, as the pseudoinverse has them
    weights = torch.linalg.pinv(rows(sums)) @ truth
    return lambda expressions: list((rows(expressions) @ weights).tolist()), len(weights)


def _calculator() -> tuple[Predict, int]:
    """The network that comes along: it reads text and writes text."""
    network = Calculator.load(SHIPPED)

    def predict(expressions: Sequence[Expression]) -> list[float | None]:
        answers = network.answer([expression.text for expression in expressions])
        return [_number(answer.text) for answer in answers]

    return predict, network.weights


def _number(text: str) -> float | None:
    """What was written, where it is a number."""
    return float(text) if text.removeprefix("-").isdecimal() else None


def all_cells(options: Options, folder: Path) -> list[Cell]:
    """Fixed baselines and searches, then seed by seed, the baseline first."""
    cells = [*fixed_cells(), *search_cells(options, folder)]
    for seed in range(options.seeds):
        cells += [arm_cell(options, folder, name, seed) for name in options.trained]
    return cells
