"""Where the object is: detection with patches chosen and not, as the paper names it."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

from sparing.core.errors import UsageError
from sparing.core.record import Label, Record
from sparing.experiment.run import Cell
from sparing.models import build_model
from sparing.tasks import Task
from sparing.train.boxes import BoxLoss, evaluate_boxes
from sparing.transfer.patching import select_patches, selector_of
from sparing_papers.hugginggreen.arms import Arm, selection_arms, shuffled
from sparing_papers.hugginggreen.names import AGAIN, BOXES, DENSE
from sparing_papers.hugginggreen.options import Options
from sparing_papers.hugginggreen.records import idle_records, inference_energy, training_records
from sparing_papers.hugginggreen.train import Work, train_metered

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def box_arms(options: Options, task: Task) -> list[Arm]:
    """Dense twice and every score, at the first way and share."""
    selecting = selection_arms(options, task, whole=False)
    return [Arm(DENSE, "dense"), Arm(AGAIN, "dense"), *selecting]


def box_cells(work: Work, pairs: int) -> list[Cell]:
    """Seed by seed; raises ``UsageError`` for a task that knows no boxes."""
    if work.task.train.boxes is None:
        raise UsageError(f"{work.name} has no boxes; scenes has, and tiny-imagenet with boxes=true")
    arms = box_arms(work.options, work.task)
    return [_cell(work, arm, seed) for seed in range(pairs) for arm in shuffled(arms, seed, BOXES)]


def _cell(work: Work, arm: Arm, seed: int) -> Cell:
    def do() -> list[Record]:
        labels: dict[str, Label] = {
            "question": BOXES,
            "task": work.name,
            "depth": work.depth,
            "arm": arm.name,
            "seed": seed,
        }
        sizes = {"layers": work.depth, "width": work.width, "heads": work.heads}
        model = build_model("vit_detector", work.task, seed=seed, **sizes)
        if arm.selection is not None:
            select_patches(model, replace(arm.selection, seed=seed))
        idle = idle_records(work.options, labels)
        place = work.place(BOXES, arm.name, seed)
        recipe = work.recipe(seed)
        trained = train_metered(model, work.task, recipe, place, work.options, objective=BoxLoss())
        found = [
            *idle,
            *_judged(model, work.task, labels),
            *training_records(trained, labels),
            *inference_energy(model, work.task, work.options, labels),
        ]
        if seed:
            shutil.rmtree(place, ignore_errors=True)
        return found

    return Cell(f"{BOXES}/{work.name}/{work.depth}/{seed}/{arm.name}", do)


def _judged(model: PreTrainedModel, task: Task, labels: dict[str, Label]) -> list[Record]:
    """mAP, overlap and top-1 on the test split; of arms that select also with every patch."""
    found = evaluate_boxes(model, task).scores
    records = [Record(name, value, "score", "measured", labels) for name, value in found.items()]
    selector = selector_of(model)
    if selector is not None:
        before = selector.selection
        selector.selection = replace(before, at_inference=False)
        every = evaluate_boxes(model, task).scores
        selector.selection = before
        records += [
            Record(f"{name}_of_all_patches", value, "score", "measured", labels)
            for name, value in every.items()
        ]
    return records
