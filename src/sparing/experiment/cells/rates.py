"""Choose each arm's learning rate: the one that validates best with its first seed.

One rate for all arms would favour the arms that it suits. On ListOps the control `uniform` stays at
chance level at the rate at which dense attention learns, and is as accurate as dense attention at a
third of it. A control that failed to train would make a task look as if it needed attention.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparing.core.errors import DataError, Diverged, NotFinite, UsageError
from sparing.core.ranks import first
from sparing.core.reading import parse_json, read_plain
from sparing.core.record import Record
from sparing.core.writing import write_atomically
from sparing.experiment.cells.training import Trained, train_metered, trained_cell
from sparing.experiment.run import Cell
from sparing.measure.machine import threads
from sparing.tasks import Task
from sparing.train import Recipe

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from sparing.train.objective import Objective

FIRST_SEED = 0
DIVERGED, RESULT = "diverged.json", "result.json"
Folder = Callable[[float], Path]


def labels_alone(seed: int) -> None:
    """No further objective: the labels of the task are learned, whatever the seed."""


@dataclass(frozen=True)
class Tuned:
    """The trainings of one arm, all at the rate that validates best with the first seed.

    ``recipe`` and ``folder`` give those of a training by its seed and its rate.
    """

    build: Callable[[int], PreTrainedModel]
    task: Task
    recipe: Callable[[int, float], Recipe]
    rates: Sequence[float]
    folder: Callable[[int, float], Path]
    watts_per_core: float
    objective: Callable[[int], Objective | None] = labels_alone

    def run(self, seed: int) -> Trained:
        """Train with a seed, or read a finished training; an interrupted one goes on."""
        return self._train(seed, self.rate())

    def rate(self) -> float:
        """The rate of all seeds; the trainings that decide it are kept and not repeated."""
        train_first = partial(self._train, FIRST_SEED)
        return best_rate(self.rates, train_first, partial(self.folder, FIRST_SEED))

    def _train(self, seed: int, rate: float) -> Trained:
        return train_metered(
            self.build(seed),
            self.task,
            self.recipe(seed, rate),
            self.folder(seed, rate),
            self.watts_per_core,
            objective=self.objective(seed),
        )


def training_cell(
    key: str,
    tuned: Callable[[], Tuned],
    seed: int,
    record: Callable[[Trained], list[Record]],
    *,
    thread_count: int,
    weight: float,
) -> Cell:
    """Train an arm with a seed and record its results; an interrupted training goes on.

    ``tuned`` is called when the cell is done: it may read data. ``record`` evaluates the model.
    """

    def training() -> Trained:
        with threads(thread_count):
            return tuned().run(seed)

    def recorded(trained: Trained) -> list[Record]:
        with threads(thread_count):
            return record(trained)

    return trained_cell(key, training, recorded, weight=weight)


def trainings(rates: Sequence[float], seed: int) -> int:
    """How many trainings a seed takes: the first one is trained at every rate."""
    return len(rates) if seed == FIRST_SEED else 1


def require_rates(rates: Sequence[Any], of: str) -> None:
    """Raise ``UsageError`` unless they are one or more different numbers above 0."""
    if not rates or len(set(rates)) != len(rates):
        raise UsageError(f"{of} must be one or more different rates; got {rates}")
    for rate in rates:
        if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate < math.inf:
            raise UsageError(f"{of} must be above 0 and finite; got {rate}")


def best_rate(rates: Sequence[float], train_at: Callable[[float], object], folder: Folder) -> float:
    """The rate of all seeds; the trainings that decide it are made where they are missing.

    ``train_at`` trains with the first seed and leaves its result in ``folder`` of the rate. One
    that diverges is noted there, so that no other seed tries it again; raises ``NotFinite`` where
    all do. A single rate is not tried.
    """
    if len(rates) > 1:
        for rate in rates:
            _try(rate, train_at, folder(rate))
    best = known_rate(rates, folder)
    if best is None:
        raise DataError(f"{folder(rates[0]).parent} lost the results of its trainings: start again")
    return best


def _try(rate: float, train_at: Callable[[float], object], folder: Path) -> None:
    if _loss(folder) is not None:
        return
    try:
        train_at(rate)
    except NotFinite as error:
        text = json.dumps({"reason": str(error)}) + "\n"
        first(lambda: write_atomically(folder / DIVERGED, text))


def known_rate(rates: Sequence[float], folder: Folder) -> float | None:
    """The rate of least validation loss, as far as trained; None where a training is missing."""
    if len(rates) == 1:
        return rates[0]
    losses = {rate: _loss(folder(rate)) for rate in rates}
    known = {rate: loss for rate, loss in losses.items() if loss is not None}
    if len(known) < len(rates):
        return None
    best = min(rates, key=known.__getitem__)
    if math.isinf(known[best]):
        reason = _reason(folder(best) / DIVERGED)
        named = ", ".join(map(str, rates))
        raise Diverged(f"the training diverges at every rate of {named}: {reason}")
    return best


def _loss(folder: Path) -> float | None:
    """The validation loss of a training; infinite where it is not finite, None where not done."""
    if (folder / DIVERGED).exists():
        return math.inf
    file = folder / RESULT
    if not file.is_file():
        return None
    try:
        loss = float(parse_json(read_plain(file), finite=False)["validation_loss"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{file} does not hold the results of a training: remove it") from error
    return loss if math.isfinite(loss) else math.inf  # NaN is neither less nor more than others


def _reason(noted: Path) -> str:
    if not noted.exists():
        return "the validation loss is not finite"
    try:
        return str(parse_json(read_plain(noted))["reason"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{noted} does not hold the reason why a training diverged: remove it"
        ) from error
