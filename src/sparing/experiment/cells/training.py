"""The training of a cell: under an energy meter, resumable, and the records that it leaves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sparing.core.record import Labels, Record, measured
from sparing.experiment.parallel.leading import jointly
from sparing.experiment.run import Cell
from sparing.measure.energy import Component, EnergyMeter
from sparing.measure.windows import SUFFIX, EnergyWindows
from sparing.tasks import Task
from sparing.train import Recipe, TrainResult, train

if TYPE_CHECKING:
    from torch import nn
    from transformers import PreTrainedModel

    from sparing.train.objective import Objective


T = TypeVar("T")


def trained_cell(
    key: str, training: Callable[[], T], record: Callable[[T], list[Record]], **more: Any
) -> Cell:
    """A cell with a training that processes can share; process 0 makes records of its result.

    ``training`` must only read what earlier cells wrote, and write by ``train`` alone. ``more`` are
    further fields of the cell.
    """
    return Cell(key, lambda: record(jointly(training)), together=training, **more)


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained model, its task and recipe, the result, and the meter of its steps."""

    model: PreTrainedModel
    task: Task
    recipe: Recipe
    result: TrainResult
    meter: EnergyWindows

    @property
    def components(self) -> tuple[Component, ...]:
        """How each part of the energy was obtained.

        A training that was read back has no window: a short one on this machine shows it.
        """
        return self.meter.components or components_here(self.meter.meter)

    def records(self, labels: Labels) -> list[Record]:
        """Parameters, learning rate and what the training took."""
        return [
            *measured(labels, "numbers", params=self.model.num_parameters()),
            *measured(labels, "", learning_rate=self.recipe.learning_rate),
            *self.spent(labels),
        ]

    def spent(self, labels: Labels) -> list[Record]:
        """Seconds, steps, epochs, the best validation loss and joules."""
        result, joules = self.result, joules_in(self.result.curve[-1])
        records = [
            *measured(labels, "s", train_time_s=result.train_time_s),
            *measured(labels, "", steps=float(result.steps), epochs=float(len(result.curve))),
            *measured(labels, "", validation_loss=result.validation_loss),
        ]
        for part in self.components:
            energy = joules.get(f"{part.name}{SUFFIX}")
            if energy is not None:
                # the total is of all windows, a component's text is of the last one
                method = f"windows between validations, summed; the last: {part.method}"
                about: Labels = {**labels, "component": part.name, "method": method}
                records.append(Record("train_energy_j", energy, "J", part.obtained, about))
        return records

    def curve(
        self, labels: Labels, at: Callable[[Mapping[str, Any]], Labels], count: int = 1
    ) -> list[Record]:
        """The validation scores; ``at`` gives the labels that name a validation."""
        return [
            Record(
                "validation_score",
                float(entry["validation_score"]),
                "share",
                "measured",
                {**labels, **at(entry)},
                count=count,
            )
            for entry in self.result.curve
        ]


def components_here(meter: EnergyMeter) -> tuple[Component, ...]:
    """A meter's components on this machine, from a short window."""
    with meter:
        sum(range(200_000))
    return meter.energy.components


def joules_in(entry: Mapping[str, float | int]) -> dict[str, float]:
    """Joules by component until an entry of a curve; the last one is of the whole training."""
    return {name: float(value) for name, value in entry.items() if name.endswith(SUFFIX)}


def train_metered(
    model: PreTrainedModel,
    task: Task,
    recipe: Recipe,
    folder: Path,
    watts_per_core: float,
    *,
    backend: str = "own",
    objective: Objective | None = None,
    teacher: nn.Module | None = None,
) -> Trained:
    """Train a model in a folder, or read a finished training; an interrupted one goes on.

    Energy is counted in steps alone, with that constant where the machine has no counter.
    ``backend`` is the meter's.
    """
    meter = EnergyWindows(EnergyMeter(watts_per_core=watts_per_core, backend=backend))
    result = train(
        model,
        task,
        recipe,
        output_dir=folder,
        objective=objective,
        teacher=teacher,
        meter=meter,
    )
    return Trained(model, task, recipe, result, meter)
