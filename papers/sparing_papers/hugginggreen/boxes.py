"""Detection of an object, with all patches and with selected ones."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sparing.core.errors import UsageError
from sparing.core.record import Record, measured
from sparing.experiment.run import Cell
from sparing.models import build_model
from sparing.tasks import Task
from sparing.train import train
from sparing.train.boxes import BoxLoss, detect, evaluate_boxes, score_detections
from sparing.transfer.patching import select_patches
from sparing_papers.hugginggreen.arms import Arm, selection_arms, shuffled
from sparing_papers.hugginggreen.cells import metered_cell
from sparing_papers.hugginggreen.names import AGAIN, BOXES, DENSE, MEDIAN_BOX
from sparing_papers.hugginggreen.train import Paid, Work, read_result, train_paid

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def box_cells(work: Work, pairs: int) -> list[Cell]:
    """Dense twice and every score, at the first way and share, seed by seed.

    With ``median_box`` each seed ends with a guess of the box, by the classes of its dense model.
    Raises ``UsageError`` for a task without boxes.
    """
    if work.task.train.boxes is None:
        raise UsageError(f"{work.name} has no boxes; scenes has, and tiny-imagenet with boxes=true")
    selecting = selection_arms(work.options, work.task, whole=False)
    arms = [Arm(DENSE, "dense"), Arm(AGAIN, "dense"), *selecting]
    arms += [Arm(MEDIAN_BOX, "guess")] if work.options.median_box else []
    return [_cell(work, arm, seed) for seed in range(pairs) for arm in shuffled(arms, seed, BOXES)]


def _cell(work: Work, arm: Arm, seed: int) -> Cell:
    if arm.kind == "guess":
        return _guess_cell(work, seed)

    def trained() -> Paid:
        model = build_model("vit_detector", work.task, seed=seed, **work.sizes)
        if arm.selection is not None:
            select_patches(model, replace(arm.selection, seed=seed))
        folder, recipe = work.training_dir(BOXES, arm.name, seed), work.recipe(seed)
        return train_paid(work, model, work.task, recipe, folder, objective=BoxLoss())

    return metered_cell(work, BOXES, arm.name, seed, trained, _scores)


def _guess_cell(work: Work, seed: int) -> Cell:
    """What detection is worth without finding anything: the dense model's classes, one box.

    Its centre, width and height are the medians of those of training. Nothing is trained.
    """
    labels = work.labels(BOXES, MEDIAN_BOX, seed)

    def do() -> list[Record]:
        folder, task = work.training_dir(BOXES, DENSE, seed), work.task
        read_result(folder)  # it has ended, so that training it again only reads it
        dense = build_model("vit_detector", task, seed=seed, **work.sizes)
        train(dense, task, work.recipe(seed), output_dir=folder, objective=BoxLoss())
        assert task.train.boxes is not None
        detections = detect(dense, task, "test")
        box = task.train.boxes.median(0, keepdim=True).values
        guessed = replace(detections, boxes=box.expand_as(detections.boxes))
        scores = score_detections(guessed, task.test).scores
        return measured(labels, "score", len(task.test), **scores)

    return Cell(f"{BOXES}/{work.name}/{work.depth}/{seed}/{MEDIAN_BOX}", do)


def _scores(model: PreTrainedModel, task: Task) -> dict[str, float]:
    """mAP, overlap and top-1 on the test split."""
    return dict(evaluate_boxes(model, task).scores)
