"""One arm's trainings: the rate that validates best with the first seed serves them all."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from sparing.core.errors import NotFinite, UsageError
from sparing.core.record import Label, Record
from sparing.studies._run import write_atomically
from sparing.studies._spent import spent_records, windows
from sparing.tasks import Task
from sparing.train import Recipe, TrainResult, train

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from sparing.measure.windows import EnergyWindows
    from sparing.train.objective import Objective

FIRST_SEED = 0
DIVERGED = "diverged.json"


@dataclass(frozen=True)
class Schedule:
    """How long a model learns, and at which rates: ``passes`` over its examples, with warm-up.

    Where there are several ``learning_rates``, every arm is trained at each with the first seed,
    and the one with the least validation loss is that of all its seeds: at one rate for all, arms
    that want a lower one would be judged by the rate.
    """

    passes: int = 3
    learning_rates: tuple[float, ...] = (2e-3, 5e-3)
    weight_decay: float = 0.01

    def __post_init__(self) -> None:
        if self.passes < 1:
            raise UsageError(f"passes must be at least 1, got {self.passes}")
        if not self.learning_rates or len(set(self.learning_rates)) != len(self.learning_rates):
            raise UsageError(f"learning_rates must be one or more different ones: {self}")
        for rate in self.learning_rates:
            if not rate > 0:
                raise UsageError(f"learning_rates must be above 0, got {rate}")

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
        if len(rates) == 1:
            return rates[0]
        losses = {rate: self._loss(rate) for rate in rates}
        best = min(rates, key=losses.__getitem__)
        if math.isinf(losses[best]):
            reason = json.loads((self._folder(FIRST_SEED, best) / DIVERGED).read_text())["reason"]
            named = ", ".join(map(str, rates))
            raise NotFinite(f"the training diverges at every rate of {named}: {reason}")
        return best

    def _loss(self, rate: float) -> float:
        """The first seed's validation loss at a rate; infinite where that training diverges.

        That is noted, so that the other seeds do not try it again.
        """
        told = self._folder(FIRST_SEED, rate) / DIVERGED
        if told.exists():
            return math.inf
        try:
            return self._train(FIRST_SEED, rate).result.validation_loss
        except NotFinite as error:
            write_atomically(told, json.dumps({"reason": str(error)}) + "\n")
            return math.inf

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
