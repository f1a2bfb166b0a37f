"""Training on a varying number of patches: schedules, and their total cost."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from sparing.core.errors import UsageError, require_choice
from sparing.layers.patches import keep_count
from sparing.train.objective import Objective
from sparing.train.recipe import Recipe
from sparing.transfer.patching import Selection, selector_of

KINDS = ("constant", "decay", "compounding", "linear", "cosine")
FIELDS = ("chance", "keep")


@dataclass(frozen=True)
class PatchSchedule:
    """How a field of the selection, ``chance`` or the share to ``keep``, changes while training.

    Formula: constant s; decay s / (1 + r E); compounding s / prod_{e=1..E} (1 + r e);
    linear s + (f - s) d; cosine f + (s - f) (1 + cos(pi d)) / 2.

    Symbols: s is ``start``, f ``end``, r ``rate``, E the finished epochs, d the finished share of
    all steps.

    Source: HuggingGreen (2023), Table II, for the probability that decays. Its text prints a rate
    over epochs; its code divides the already divided value ("compounding"). Both let costs rise
    during training. What differs: the choice depends on seed and step.
    """

    kind: str = "constant"
    field: str = "chance"
    start: float = 1.0
    end: float = 1.0
    rate: float = 5e-3

    def __post_init__(self) -> None:
        require_choice("patch schedule", "kind", self.kind, KINDS)
        require_choice("patch schedule", "field", self.field, FIELDS)
        for name in ("start", "end"):
            value = getattr(self, name)
            if not 0 <= value <= 1 or (self.field == "keep" and value == 0):
                least = "above 0 and at most 1" if self.field == "keep" else "from 0 to 1"
                raise UsageError(f"patch schedule: {name} of {self.field} is {least}; got {value}")
        if self.rate < 0:
            raise UsageError(f"patch schedule: rate must not be negative; got {self.rate}")

    def value(self, epoch: int, done: float) -> float:
        """The field's value after ``epochs`` epochs and the share ``done`` of all steps."""
        if self.kind == "decay":
            return self.start / (1 + self.rate * epoch)
        if self.kind == "compounding":
            return self.start / math.prod(1 + self.rate * past for past in range(1, epoch + 1))
        if self.kind == "linear":
            return self.start + (self.end - self.start) * done
        if self.kind == "cosine":
            return self.end + (self.start - self.end) * (1 + math.cos(math.pi * done)) / 2
        return self.start


class ScheduledPatches:
    """A loss of a model with patches selected by a schedule.

    ``selection`` sets everything that the schedule does not; ``recipe`` and ``examples``, the
    number of training images, give the length of training. Validations between epochs, and the
    final model, select by ``selection``.
    """

    def __init__(
        self,
        inner: Objective,
        selection: Selection,
        schedule: PatchSchedule,
        recipe: Recipe,
        examples: int,
    ) -> None:
        if examples < 1:
            raise UsageError("a schedule of patches needs at least one training image")
        self.inner, self.selection, self.schedule = inner, selection, schedule
        self.recipe, self.examples = recipe, examples

    @property
    def teacher(self) -> nn.Module | None:
        """The inner loss's teacher."""
        return self.inner.teacher

    @property
    def epoch_steps(self) -> int:
        """Steps of one epoch; the last may have fewer images."""
        return -(-self.examples // self.recipe.batch_size)

    def describe(self) -> dict[str, Any]:
        """The inner loss's description, the schedule and the selection."""
        settings = {"patch_schedule": asdict(self.schedule), "patches": asdict(self.selection)}
        return {**self.inner.describe(), **settings}

    def selection_at(self, step: int) -> Selection:
        """The selection in a step: a function of seed and step, so a resumed run agrees."""
        steps = self.epoch_steps * self.recipe.epochs
        value = self.schedule.value(step // self.epoch_steps, step / steps)
        if self.schedule.field == "keep":
            selection = replace(self.selection, keep=value)
        else:
            selection = replace(self.selection, chance=value)
        drawn = random.Random(f"{self.recipe.seed}:{step}").random() < selection.chance
        return replace(selection, chance=float(drawn))

    def __call__(self, model: nn.Module, batch: dict[str, Tensor], step: int) -> Float[Tensor, ""]:
        """The inner loss of a batch; ``UsageError`` for a model that selects no patches."""
        selector = selector_of(model)
        if selector is None:
            raise UsageError("a schedule of patches needs a model with select_patches")
        before = selector.selection
        selector.selection = self.selection_at(step)
        try:
            return self.inner(model, batch, step)
        finally:
            selector.selection = before

    def tokens(self, patches: int, extra: int = 1) -> int:
        """How many tokens all layers see in the whole training, counting every pass over an image.

        ``patches`` are those of an image, ``extra`` the model's own tokens beside them. The cost of
        training follows from it; that of the attention core falls faster.
        """
        return sum(images * (extra + count) for images, count in self.patch_counts(patches))

    def patch_counts(self, patches: int) -> Iterator[tuple[int, int]]:
        """Images, and the patches of each that go on, step by step."""
        size = self.recipe.batch_size
        for step in range(self.epoch_steps * self.recipe.epochs):
            images = min(size, self.examples - step % self.epoch_steps * size)
            selection = self.selection_at(step)
            yield images, keep_count(patches, selection.keep) if selection.chance else patches
