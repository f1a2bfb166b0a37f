"""The cells of the HuggingGreen study: one training each; baselines train for equal cost."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from sparing.core.reading import parse_json, read_plain
from sparing.core.record import Record
from sparing.core.writing import write_atomically
from sparing.experiment.run import Cell
from sparing_papers.hugginggreen.arms import Arm, equal_epochs, selection_arms
from sparing_papers.hugginggreen.names import BOXES, DENSE, PATCHES, STAGES
from sparing_papers.hugginggreen.records import (
    Scores,
    class_scores,
    idle_records,
    inference_energy,
    score_records,
    training_records,
)
from sparing_papers.hugginggreen.train import (
    Paid,
    Work,
    arithmetic_of,
    counted_j,
    joules_of,
    read_result,
    train_arm,
    train_paid,
)


def metered_cell(
    work: Work,
    question: str,
    arm: str,
    seed: int,
    train: Callable[[], Paid],
    scores: Scores = class_scores,
) -> Cell:
    """Train once; the records have the scores, the cost of training and that of a prediction."""

    def do() -> list[Record]:
        labels = work.labels(question, arm, seed)
        idle = idle_records(work.options, labels)
        paid = train()
        model, task = paid.last.model, paid.last.task
        records = [
            *idle,
            *score_records(model, task, labels, scores),
            *training_records(paid, labels),
            *inference_energy(model, task, work.options, labels),
        ]
        _tidy(work, question, arm, seed)
        return records

    return Cell(f"{question}/{work.name}/{work.depth}/{seed}/{arm}", do)


def arm_cell(work: Work, question: str, arm: Arm, seed: int) -> Cell:
    """One variant of RQ1 or RQ2 with one seed."""

    def train() -> Paid:
        return train_arm(work, arm, seed, question, epochs_of(work, question, arm, seed))

    return metered_cell(work, question, arm.name, seed, train)


def epochs_of(work: Work, question: str, arm: Arm, seed: int) -> int:
    """The epochs of a variant: those of the recipe, or as many as cost what a selection costs.

    Baselines of the same compute get the selecting variant's FLOPs, rounded up to whole epochs. The
    convolutional network runs its FLOPs at another speed, so it gets the selecting variant's
    energy.
    """
    recipe = work.recipe(seed)
    if arm.kind in ("steps", "larger"):
        aim = _selecting(work, arm.keep)
        whole = arithmetic_of(work.build(aim, seed), aim, work.task, recipe).total
        task = work.task_of(arm)
        once = arithmetic_of(work.build(arm, seed), arm, task, replace(recipe, epochs=1)).total
        return equal_epochs(whole, once)
    if arm.kind == "network":
        return _network_epochs(work, question, arm, seed)
    return recipe.epochs


def _selecting(work: Work, keep: float | int) -> Arm:
    """The variant that a baseline's cost is matched to: the first score and way at that share."""
    arms = selection_arms(work.options, work.task, whole=True)
    return next(arm for arm in arms if arm.keep == keep)


def _network_epochs(work: Work, question: str, arm: Arm, seed: int) -> int:
    """As many epochs as use the selecting variant's energy, by one epoch of a discarded model.

    Saved to a file, so that an interrupted training resumes with the same number.
    """
    folder = work.training_dir(question, arm.name, seed)
    written = folder.with_name(f"{folder.name}.json")
    if written.is_file():
        return int(parse_json(read_plain(written))["epochs"])
    aim = _selecting(work, arm.keep)
    whole = joules_of(read_result(work.training_dir(question, aim.name, seed)), work.options)
    once = epoch_energy(work, arm, seed)
    epochs = equal_epochs(whole, once)
    write_atomically(written, json.dumps({"epochs": epochs, "epoch_j": once}) + "\n")
    return epochs


def epoch_energy(work: Work, arm: Arm, seed: int) -> float:
    """Joules of one epoch, of the components that are compared."""
    recipe = replace(work.recipe(seed), epochs=1)
    with tempfile.TemporaryDirectory() as folder:
        model, output_dir = work.build(arm, seed), Path(folder)
        paid = train_paid(work, model, work.task_of(arm), recipe, output_dir)
    return counted_j(paid.spent, work.options)


def _tidy(work: Work, question: str, arm: str, seed: int) -> None:
    """Delete models that no later cell needs: hundreds of them would fill a disk.

    Kept are the first seed, all stages, and for RQ2 every seed's dense variant and the variants
    that networks are matched to. A guess of boxes needs the dense variant too.
    """
    needed: dict[str, set[str]] = {BOXES: {DENSE} if work.options.median_box else set()}
    if question == PATCHES:
        needed[PATCHES] = {DENSE, *(_selecting(work, keep).name for keep in work.options.keeps)}
    if seed and question != STAGES and arm not in needed.get(question, set()):
        shutil.rmtree(work.training_dir(question, arm, seed), ignore_errors=True)
