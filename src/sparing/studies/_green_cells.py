"""The cells of the HuggingGreen study: one training each, its rivals' length fitted to its cost."""

from __future__ import annotations

import json
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sparing.core.record import Label, Record
from sparing.layers.patches import keep_count
from sparing.studies._green_arms import DENSE, Arm, equal_epochs, selection_arms
from sparing.studies._green_train import (
    Work,
    idle_records,
    image_flops,
    inference_energy,
    judged,
    read_result,
    spent_in,
    train_arm,
    train_flops,
    train_metered,
    training_records,
)
from sparing.studies._run import Cell, write_atomically

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def arm_cell(work: Work, question: str, arm: Arm, seed: int) -> Cell:
    """Train one arm with one seed, and say what it came to and what it took."""

    def do() -> list[Record]:
        labels: dict[str, Label] = {
            "question": question,
            "task": work.name,
            "depth": work.depth,
            "arm": arm.name,
            "seed": seed,
        }
        idle = idle_records(work.options, labels)
        epochs = epochs_of(work, question, arm, seed)
        model, result, spent, recipe = train_arm(work, arm, seed, question, epochs)
        cost, tokens = train_flops(model, arm, work.task_of(arm), recipe)
        task = work.task_of(arm)
        found = [
            *idle,
            *judged(model, task, labels),
            *training_records(result, spent, work.options, labels),
            *inference_energy(model, task, work.options, labels),
            Record("train_flops", cost, "FLOP", "modelled", labels),
            Record("image_flops", float(_calling(model, arm, work)), "FLOP", "modelled", labels),
            Record("image_tokens", tokens, "tokens", "modelled", labels),
            Record("epochs", float(epochs), "", "measured", labels),
        ]
        tidy(work, question, arm, seed)
        return found

    return Cell(f"{question}/{work.name}/{work.depth}/{seed}/{arm.name}", do)


def _calling(model: PreTrainedModel, arm: Arm, work: Work) -> int:
    """The arithmetic of one prediction."""
    return image_flops(model, work.task_of(arm), _kept(work, arm))


def epochs_of(work: Work, question: str, arm: Arm, seed: int) -> int:
    """How long an arm trains: the recipe's epochs, or as many as cost what a selection costs.

    Rivals of the same compute get what the selecting arm's arithmetic buys, rounded up; the
    convolutional network, whose arithmetic runs at another speed, what its energy buys.
    """
    usual = work.recipe(seed).epochs
    if arm.kind in ("steps", "larger"):
        aim = _selecting(work, arm)
        cost = image_flops(work.build(aim, seed), work.task, _kept(work, aim))
        own = image_flops(work.build(arm, seed), work.task_of(arm))
        return equal_epochs(usual, cost, own)
    if arm.kind == "network":
        return _network_epochs(work, question, arm, seed)
    return usual


def _selecting(work: Work, rival: Arm) -> Arm:
    """The arm whose cost a rival has: the first score and way at that share."""
    arms = selection_arms(work.options, work.task, whole=True)
    return next(arm for arm in arms if arm.keep == rival.keep)


def _kept(work: Work, arm: Arm) -> int | None:
    """How many patches go on; None where the arm selects none."""
    if arm.selection is None:
        return None
    return keep_count(work.task.tokens - 1, arm.selection.keep)


def _network_epochs(work: Work, question: str, arm: Arm, seed: int) -> int:
    """As many epochs as take the selecting arm's energy, by one epoch of a model thrown away.

    Written down, so that a training that was interrupted goes on with the same number.
    """
    place = work.place(question, arm.name, seed)
    written = place.with_name(f"{place.name}.json")
    if written.is_file():
        return int(json.loads(written.read_text(encoding="utf-8"))["epochs"])
    aim = _selecting(work, arm)
    whole = sum(spent_in(read_result(work.place(question, aim.name, seed))).values())
    once = epoch_energy(work, arm, seed)
    epochs = max(1, round(whole / once))
    write_atomically(written, json.dumps({"epochs": epochs, "epoch_j": once}) + "\n")
    return epochs


def epoch_energy(work: Work, arm: Arm, seed: int) -> float:
    """Joules of one epoch, all components together."""
    recipe = replace(work.recipe(seed), epochs=1)
    with tempfile.TemporaryDirectory() as folder:
        model = work.build(arm, seed)
        _, spent = train_metered(model, work.task_of(arm), recipe, Path(folder), work.options)
    return sum(spent.values())


def tidy(work: Work, question: str, arm: Arm, seed: int) -> None:
    """Drop what no later cell needs: hundreds of models would fill a disk.

    What stays is the first seed, and every seed's dense arm and what its network is held against.
    """
    if seed and arm.kind != "selection" and arm.name != DENSE:
        shutil.rmtree(work.place(question, arm.name, seed), ignore_errors=True)
