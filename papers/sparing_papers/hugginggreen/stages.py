"""RQ3: training in stages, and training from scratch at equal energy and at equal steps."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

from sparing.experiment.run import Cell
from sparing.models import build_model
from sparing.tasks import Task
from sparing.train import TrainResult
from sparing.train.contrastive import HardNegatives
from sparing.train.masking import MaskedPatches, Masking
from sparing.transfer.stages import carry_encoder, freeze_layers, masked_form, renew_layers
from sparing_papers.hugginggreen.arms import equal_epochs
from sparing_papers.hugginggreen.cells import metered_cell
from sparing_papers.hugginggreen.names import (
    CONTRASTIVE,
    FROZEN,
    LONGER,
    SCRATCH,
    STAGED,
    STAGES,
    Longer,
)
from sparing_papers.hugginggreen.train import Paid, Work, joules_of, read_result, train_paid

if TYPE_CHECKING:
    from transformers import PreTrainedModel

MASKED_STAGE, CONTRASTIVE_STAGE = "masked stage", "contrastive stage"


def arms_of(seed: int) -> list[str]:
    """The variants in the order in which a seed runs them: those that others need come first."""
    chance = random.Random(f"{STAGES}:{seed}")
    first, then = [SCRATCH, *STAGED], [longer.name for longer in LONGER]
    chance.shuffle(first)
    chance.shuffle(then)
    return [*first, *then]


def stage_cell(work: Work, images: Task, name: str, seed: int) -> Cell:
    """One variant with all its stages. A stage shared by two is trained once and counts in both."""
    return metered_cell(work, STAGES, name, seed, lambda: _train(work, images, name, seed))


def _train(work: Work, images: Task, name: str, seed: int) -> Paid:
    """A trained model, and all its stages."""
    model, recipe = build_model("vit", work.task, seed=seed, **work.sizes), work.recipe(seed)
    stages: list[TrainResult] = []
    if name in STAGED:
        stages = _before(work, images, model, name, seed)
        if name == FROZEN:
            half = work.depth // 2
            renew_layers(model, work.depth - half, seed=seed)
            freeze_layers(model, half)
    elif name != SCRATCH:
        longer = next(candidate for candidate in LONGER if candidate.name == name)
        recipe = replace(recipe, epochs=_epochs(work, longer, seed))
    folder = work.training_dir(STAGES, name, seed)
    return train_paid(work, model, work.task, recipe, folder, before=tuple(stages))


def _before(
    work: Work, images: Task, model: PreTrainedModel, name: str, seed: int
) -> list[TrainResult]:
    """Train the stages without labels; the model takes over their weights."""
    masked_epochs, contrastive_epochs = work.options.stage_epochs
    recipe = replace(work.recipe(seed), epochs=masked_epochs)
    rebuilding = masked_form(model, seed=seed)
    folder = work.training_dir(STAGES, MASKED_STAGE, seed)
    objective = MaskedPatches(Masking(seed=seed))
    first = train_paid(work, rebuilding, images, recipe, folder, objective=objective)
    results = [first.last.result]
    carry_encoder(rebuilding, model)
    if name == CONTRASTIVE:
        recipe = replace(recipe, epochs=contrastive_epochs)
        folder = work.training_dir(STAGES, CONTRASTIVE_STAGE, seed)
        views = HardNegatives("views")
        then = train_paid(work, model, images, recipe, folder, objective=views)
        results.append(then.last.result)
    return results


def _epochs(work: Work, longer: Longer, seed: int) -> int:
    """Epochs from scratch at the energy, or the steps, of a staged variant; rounded up."""
    scratch = read_result(work.training_dir(STAGES, SCRATCH, seed))
    names = [MASKED_STAGE, longer.of]
    if longer.of == CONTRASTIVE:
        names.insert(1, CONTRASTIVE_STAGE)
    parts = [read_result(work.training_dir(STAGES, name, seed)) for name in names]
    epochs = work.recipe(seed).epochs

    def size(result: TrainResult) -> float:
        steps = longer.equal == "steps"
        return float(result.steps) if steps else joules_of(result, work.options)

    return equal_epochs(sum(map(size, parts)), size(scratch) / epochs)
