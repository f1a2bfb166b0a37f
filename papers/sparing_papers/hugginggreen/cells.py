"""The cells of the HuggingGreen study: one training each, its rivals' length fitted to its cost."""

from __future__ import annotations

import json
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sparing.core.reading import parse_json, read_plain
from sparing.core.record import Label, Record
from sparing.core.writing import write_atomically
from sparing.experiment.run import Cell
from sparing.layers.patches import keep_count
from sparing_papers.hugginggreen.arms import Arm, equal_epochs, selection_arms
from sparing_papers.hugginggreen.names import DENSE, PATCHES
from sparing_papers.hugginggreen.records import (
    idle_records,
    inference_energy,
    judged,
    training_records,
)
from sparing_papers.hugginggreen.train import (
    Work,
    arithmetic_of,
    counted_j,
    image_flops,
    read_result,
    spent_in,
    train_arm,
    train_metered,
)

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
        trained, counted = train_arm(work, arm, seed, question, epochs)
        model, task = trained.model, work.task_of(arm)
        found = [
            *idle,
            *judged(model, task, labels),
            *training_records(trained, labels, counted),
            *inference_energy(model, task, work.options, labels),
            Record("train_flops", counted.total, "FLOP", "modelled", labels),
            Record("image_flops", float(_calling(model, arm, work)), "FLOP", "modelled", labels),
            Record("image_tokens", counted.tokens, "tokens", "modelled", labels),
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

    Rivals of the same compute get what the selecting arm's whole arithmetic buys, rounded up; the
    convolutional network, whose arithmetic runs at another speed, what its energy buys.
    """
    recipe = work.recipe(seed)
    if arm.kind in ("steps", "larger"):
        aim = _selecting(work, arm)
        whole = arithmetic_of(work.build(aim, seed), aim, work.task, recipe).total
        own = work.task_of(arm)
        once = arithmetic_of(work.build(arm, seed), arm, own, replace(recipe, epochs=1)).total
        return equal_epochs(whole, once)
    if arm.kind == "network":
        return _network_epochs(work, question, arm, seed)
    return recipe.epochs


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
        return int(parse_json(read_plain(written))["epochs"])
    aim = _selecting(work, arm)
    spent = spent_in(read_result(work.place(question, aim.name, seed)))
    whole, once = counted_j(spent, work.options), epoch_energy(work, arm, seed)
    epochs = equal_epochs(whole, once)
    write_atomically(written, json.dumps({"epochs": epochs, "epoch_j": once}) + "\n")
    return epochs


def epoch_energy(work: Work, arm: Arm, seed: int) -> float:
    """Joules of one epoch, of the components that are compared."""
    recipe = replace(work.recipe(seed), epochs=1)
    with tempfile.TemporaryDirectory() as folder:
        model, place = work.build(arm, seed), Path(folder)
        found = train_metered(model, work.task_of(arm), recipe, place, work.options)
    return counted_j(found.spent, work.options)


def tidy(work: Work, question: str, arm: Arm, seed: int) -> None:
    """Drop what no later cell needs: hundreds of models would fill a disk.

    What stays is the first seed, and of RQ2 every seed's dense arm and what networks are held
    against.
    """
    needed = {DENSE}
    for keep in work.options.keeps:
        needed.add(_selecting(work, Arm("", "network", keep)).name)
    if seed and not (question == PATCHES and arm.name in needed):
        shutil.rmtree(work.place(question, arm.name, seed), ignore_errors=True)
