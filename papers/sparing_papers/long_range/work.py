"""What the long-range studies share: their options, and one task with all that its cells need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import torch

from sparing.core.checks import Count, NotNegative, Positive, check_fields, distinct, require_names
from sparing.core.errors import UsageError
from sparing.experiment.cells.rates import FIRST_SEED, RESULT, Tuned, known_rate, require_rates
from sparing.experiment.inputs.recipes import recipe_for
from sparing.experiment.inputs.task import limited, load_for, require_tasks
from sparing.experiment.run import slug
from sparing.tasks import Examples, Task
from sparing.tasks.shared.files import given_folder
from sparing.train import Recipe, default_recipe
from sparing.train.recipe import Precision
from sparing.train.trainer import resolve_precision
from sparing.transfer.opening import open_model
from sparing_papers.long_range.arms import DENSE, UNIFORM, build, require_arms

if TYPE_CHECKING:
    from transformers import PreTrainedModel

NEED_NO_DATA = ("listops", "pathfinder", "digits", "scenes", "arithmetic")
TRAINED = ("epochs", "learning_rate", "batch_size")
ABOVE_CHANCE = 0.05  # how far above chance dense attention must be for a task to be sensitive
VARIANTS = ("variants", "variants_of")
# Questions with one cell a variant; of others, several variants are measured in one cell.
CELL_EACH = ("arena", "vision", "pretrained", "longer", "texts", "swapped")
MARGIN = 0.01  # what a score may be below the dense variant's and still count as no worse


@dataclass(frozen=True)
class TaskOptions:
    """Which tasks are trained on, and how.

    ``variants_of`` are the variants of tasks that have fewer than ``variants``. ``task_options``
    are by task those of ``load_task``, ``trained`` its epochs, learning rate and batch size where
    they are not the default recipe's. Of several learning rates every variant has the one that
    validates best with its first seed. ``validation_examples`` and ``test_examples`` limit the
    held-out splits (0: all of them). With ``pilot`` dense attention and ``uniform`` go first with
    one seed; the others are left out where these two promise nothing (see ``unpromising``).
    """

    tasks: Annotated[tuple[str, ...], distinct] = ("listops",)
    variants: tuple[str, ...] = (DENSE, UNIFORM)
    variants_of: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    seeds: Count = 3
    task_options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    trained: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    validation_examples: NotNegative = 500
    test_examples: NotNegative = 2000
    precision: Precision = "auto"
    margin: Positive = MARGIN
    watts_per_core: Positive = 5.0
    thread_count: Count = 1
    pilot: bool = True

    def __post_init__(self) -> None:
        check_fields(self)
        for variants in (self.variants, *self.variants_of.values()):
            require_arms(variants)
        require_tasks("tasks", self.tasks, ())
        for name in ("trained", "task_options", "variants_of"):
            require_tasks(name, getattr(self, name), self.tasks)
        for task, given in self.trained.items():
            require_names(f"trained.{task}", given, TRAINED)
            require_rates(self._rates(task), f"trained.{task}.learning_rate")

    @property
    def compared(self) -> tuple[str, ...]:
        """The variants with the two of the sensitivity check, dense first."""
        return tuple(dict.fromkeys((DENSE, *self.variants, UNIFORM)))

    def arms_for(self, task: str) -> tuple[str, ...]:
        """Those of one task."""
        return tuple(dict.fromkeys((DENSE, *self.variants_of.get(task, self.variants), UNIFORM)))

    def rates(self, task: str) -> tuple[float, ...]:
        """The learning rates of which each variant of a task has its best."""
        return tuple(float(rate) for rate in self._rates(task))

    def _rates(self, task: str) -> tuple[Any, ...]:
        given = self.trained.get(task, {}).get("learning_rate", default_recipe(task).learning_rate)
        return tuple(given) if isinstance(given, list | tuple) else (given,)

    def rate_text(self, task: str) -> str:
        """The learning rates for a page."""
        rates = self.rates(task)
        text = " or ".join(f"{rate:g}" for rate in rates)
        return text if len(rates) == 1 else f"{text}, each variant's best with its first seed"

    def recipe(self, task: str, seed: int, rate: float | None = None) -> Recipe:
        """How every variant of a task is trained, at a learning rate (by default the first)."""
        given = {**self.trained.get(task, {}), "learning_rate": rate or self.rates(task)[0]}
        return recipe_for(task, given, precision=self.precision, seed=seed)


@dataclass(frozen=True, eq=False)
class LongWork:
    """One task, one kind of model, and the folder of its trainings: what its cells share."""

    question: str
    name: str
    task: Task
    model: str
    folder: Path
    options: TaskOptions

    @property
    def rates(self) -> tuple[float, ...]:
        """The learning rates of which each variant has its best."""
        return self.options.rates(self.name)

    def recipe(self, seed: int, rate: float | None = None) -> Recipe:
        """How every variant is trained, at a learning rate (by default the first)."""
        return self.options.recipe(self.name, seed, rate)

    def model_dir(self, arm: str, seed: int, rate: float) -> Path:
        """The folder of one training."""
        training = f"{slug(arm)}-{seed}" if len(self.rates) == 1 else f"{slug(arm)}-{seed}-{rate:g}"
        return self.folder / "models" / f"{self.question}-{self.name}" / training

    def tuned(self, arm: str) -> Tuned:
        """The trainings of a variant."""
        folder, watts = partial(self.model_dir, arm), self.options.watts_per_core
        build = partial(self.build, arm)
        return Tuned(build, self.task, self.recipe, self.rates, folder, watts)

    def build(self, arm: str, seed: int) -> PreTrainedModel:
        """A variant before training."""
        return build(self.model, self.task, arm, seed)

    def open(self, arm: str, seed: int) -> PreTrainedModel:
        """A trained variant; raises ``UsageError`` where its training has not ended."""
        rate = known_rate(self.rates, partial(self.model_dir, arm, FIRST_SEED))
        if rate is None or not (self.model_dir(arm, seed, rate) / RESULT).is_file():
            raise UsageError(f"{arm} with seed {seed} is not trained on {self.name} so far")
        return open_model(str(self.model_dir(arm, seed, rate))).eval()


def bare_identity(
    identity: dict[str, Any], cell_each: bool = False, seeds_fixed: bool = False
) -> dict[str, Any]:
    """What makes two runs the same one, less what changes nothing of what was done.

    What a pilot left out may be trained after all, and lengths may be added where there are none.
    Seeds may be added, as they have cells of their own, and variants where they do. With
    ``seeds_fixed`` none may: their number was chosen before the run. A precision is resolved for
    this machine, as variants of different precisions must not be compared.
    """
    counts = () if seeds_fixed else ("seeds", "most_seeds")
    free = ("pilot", "seeds_fixed", *counts, *(VARIANTS if cell_each and not seeds_fixed else ()))
    bare = {}
    for name, value in identity.items():
        if name in free or (name == "read_at" and not value):
            continue
        bare[name] = value
        if isinstance(value, dict):
            by_cell = cell_each or name in CELL_EACH
            bare[name] = bare_identity(value, by_cell, seeds_fixed)
        elif name == "precision":
            bare[name] = resolve_precision(value, cpu=not torch.accelerator.is_available())
    return bare


def can_be_had(task: str, data: Path | None) -> bool:
    """Whether a task is generated or comes along, or there is a data folder."""
    return task in NEED_NO_DATA or given_folder(data) is not None


def load(options: TaskOptions, name: str, data: Path | None) -> tuple[Task, dict[str, Any]]:
    """A task with its held-out splits limited, and the options that it was loaded with."""
    task, loaded_with = load_for(name, dict(options.task_options.get(name, {})), "", data)
    sizes = {"validation": options.validation_examples, "test": options.test_examples}
    task = limited(task, sizes, evenly, "evenly sampled")
    return task, loaded_with


def evenly(examples: Examples, most: int) -> Examples:
    """Examples at even distances: an order by class would not matter."""
    return examples.subset([index * len(examples) // most for index in range(most)])
