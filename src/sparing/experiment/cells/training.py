"""The training of a cell: under an energy meter, resumable, and the records that it leaves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparing.core.record import Labels, Record, measured
from sparing.measure.energy import EnergyMeter
from sparing.measure.windows import SUFFIX, EnergyWindows
from sparing.tasks import Task
from sparing.train import Recipe, TrainResult, train

if TYPE_CHECKING:
    from torch import nn
    from transformers import PreTrainedModel

    from sparing.train.objective import Objective


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained model, how it was trained, what that came to, and the meter of its steps."""

    model: PreTrainedModel
    task: Task
    recipe: Recipe
    result: TrainResult
    meter: EnergyWindows

    def records(self, labels: Labels) -> list[Record]:
        """Parameters, learning rate and what the training took."""
        return [
            *measured(labels, "numbers", params=self.model.num_parameters()),
            *measured(labels, "", learning_rate=self.recipe.learning_rate),
            *self.spent(labels),
        ]

    def spent(self, labels: Labels) -> list[Record]:
        """Seconds, steps, epochs, the best validation loss and joules.

        A training that was read back has no window: what this machine has says how it was obtained.
        """
        if not self.meter.components:
            self.meter.start()
            self.meter.stop()
        result, curve = self.result, self.result.curve
        counts = {"steps": float(result.steps), "epochs": float(len(curve))}
        records = [
            *measured(labels, "s", train_time_s=result.train_time_s),
            *measured(labels, "", **counts, validation_loss=result.validation_loss),
        ]
        for component in self.meter.components:
            joules = curve[-1].get(f"{component.name}{SUFFIX}")
            if joules is not None:
                # the total is of all windows, a component's text speaks of the last one
                method = f"windows between validations, summed; the last: {component.method}"
                about: Labels = {**labels, "component": component.name, "method": method}
                records.append(
                    Record("train_energy_j", float(joules), "J", component.obtained, about)
                )
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


def train_metered(
    model: PreTrainedModel,
    task: Task,
    recipe: Recipe,
    folder: Path,
    watts_per_core: float,
    *,
    objective: Objective | None = None,
    teacher: nn.Module | None = None,
) -> Trained:
    """Train a model in a folder, or read back what was; an interrupted training goes on.

    Energy is counted in steps alone, with that constant where the machine has no counter.
    """
    meter = EnergyWindows(EnergyMeter(watts_per_core=watts_per_core))
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
