"""One arm's trainings: the rate that validates best with the first seed serves them all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sparing.core.checks import Count, check_fields
from sparing.core.record import Label, Record
from sparing.experiment.cells.spent import spent_records, windows
from sparing.tasks import Task
from sparing.train import Recipe, TrainResult, train
from sparing_papers.long_range.rates import FIRST_SEED, best_rate, require_rates

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from sparing.measure.windows import EnergyWindows
    from sparing.train.objective import Objective


@dataclass(frozen=True)
class Schedule:
    """How long a model learns, and at which rates: ``passes`` over its examples, with warm-up.

    Where there are several ``learning_rates``, every arm is trained at each with the first seed,
    and the one with the least validation loss is that of all its seeds: at one rate for all, arms
    that want a lower one would be judged by the rate.
    """

    passes: Count = 3
    learning_rates: tuple[float, ...] = (2e-3, 5e-3)
    weight_decay: float = 0.01

    def __post_init__(self) -> None:
        check_fields(self)
        require_rates(self.learning_rates, "learning_rates")

    def trainings(self, seed: int) -> int:
        """How many trainings a seed takes."""
        return len(self.learning_rates) if seed == FIRST_SEED else 1


@dataclass(frozen=True)
class Tuned:
    """What all trainings of an arm share; ``place`` has one folder for each seed and rate."""

    build: Callable[[int], PreTrainedModel]
    task: Task
    objective: Callable[[int], Objective | None]
    schedule: Schedule
    batch_size: int
    place: Path
    watts_per_core: float

    def run(self, seed: int) -> Trained:
        """Train with a seed, or read back what was; an interrupted training goes on."""
        return self._train(seed, self.rate())

    def rate(self) -> float:
        """The rate of all seeds; the trainings that decide it are kept and not repeated."""
        rates = self.schedule.learning_rates
        return best_rate(rates, partial(self._train, FIRST_SEED), partial(self._folder, FIRST_SEED))

    def _folder(self, seed: int, rate: float) -> Path:
        return self.place / f"{seed}-{rate:g}"

    def recipe(self, seed: int, rate: float) -> Recipe:
        """How it is trained."""
        given = self.schedule
        return replace(
            Recipe(),
            epochs=given.passes,
            batch_size=self.batch_size,
            learning_rate=rate,
            weight_decay=given.weight_decay,
            seed=seed,
        )

    def _train(self, seed: int, rate: float) -> Trained:
        model, meter = self.build(seed), windows(self.watts_per_core)
        result = train(
            model,
            self.task,
            self.recipe(seed, rate),
            output_dir=self._folder(seed, rate),
            objective=self.objective(seed),
            meter=meter,
        )
        return Trained(model, rate, result, meter)


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained model, at which rate, and what that training took."""

    model: PreTrainedModel
    rate: float
    result: TrainResult
    meter: EnergyWindows

    def records(self, labels: dict[str, Label]) -> list[Record]:
        """Parameters, rate and what was spent; the search for the rate is not counted."""
        params = self.model.num_parameters()
        return [
            Record("params", params, "numbers", "measured", dict(labels)),
            Record("learning_rate", self.rate, "", "measured", dict(labels)),
            *spent_records(self.result, self.meter, labels),
        ]
