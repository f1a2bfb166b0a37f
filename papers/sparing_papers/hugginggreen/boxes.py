"""Detection of an object, with all patches and with selected ones."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sparing.core.errors import UsageError
from sparing.experiment.run import Cell
from sparing.models import build_model
from sparing.tasks import Task
from sparing.train.boxes import BoxLoss, evaluate_boxes
from sparing.transfer.patching import select_patches
from sparing_papers.hugginggreen.arms import Arm, selection_arms, shuffled
from sparing_papers.hugginggreen.cells import metered_cell
from sparing_papers.hugginggreen.names import AGAIN, BOXES, DENSE
from sparing_papers.hugginggreen.train import Paid, Work, train_paid

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def box_cells(work: Work, pairs: int) -> list[Cell]:
    """Dense twice and every score, at the first way and share, seed by seed.

    Raises ``UsageError`` for a task without boxes.
    """
    if work.task.train.boxes is None:
        raise UsageError(f"{work.name} has no boxes; scenes has, and tiny-imagenet with boxes=true")
    selecting = selection_arms(work.options, work.task, whole=False)
    arms = [Arm(DENSE, "dense"), Arm(AGAIN, "dense"), *selecting]
    return [_cell(work, arm, seed) for seed in range(pairs) for arm in shuffled(arms, seed, BOXES)]


def _cell(work: Work, arm: Arm, seed: int) -> Cell:
    def train() -> Paid:
        model = build_model("vit_detector", work.task, seed=seed, **work.sizes)
        if arm.selection is not None:
            select_patches(model, replace(arm.selection, seed=seed))
        folder, recipe = work.training_dir(BOXES, arm.name, seed), work.recipe(seed)
        return train_paid(work, model, work.task, recipe, folder, objective=BoxLoss())

    return metered_cell(work, BOXES, arm.name, seed, train, _scores)


def _scores(model: PreTrainedModel, task: Task) -> dict[str, float]:
    """mAP, overlap and top-1 on the test split."""
    return dict(evaluate_boxes(model, task).scores)
