"""One training of a long-range study: a variant on a task with a seed, and its evaluation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from sparing.core.record import Labels, Record
from sparing.experiment.arms import shuffled
from sparing.experiment.cells.device import device
from sparing.experiment.cells.rates import FIRST_SEED, training_cell, trainings
from sparing.experiment.cells.training import Trained
from sparing.experiment.run import Cell, slug
from sparing.train import evaluate
from sparing_papers.long_range.answers import score_records
from sparing_papers.long_range.arms import DENSE
from sparing_papers.long_range.pilot import PAIR, idle_after_pilot
from sparing_papers.long_range.work import LongWork

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from sparing.tasks import Examples

# Of training encoders as narrow as these: on one core (more in bfloat16), and on an accelerator
# (an H200 with four trainings side by side).
TYPICAL_FLOPS, ACCELERATED_FLOPS = 50e9, 10e12
FORWARD_AND_BACK = 3
Measurement = Callable[["PreTrainedModel", LongWork, Labels], list[Record]]


def training_cells(
    work: LongWork, measurements: Sequence[Measurement] = (), always: Sequence[str] = ()
) -> list[Cell]:
    """Seed by seed, every variant in a new random order, so that pairs are close in time.

    ``measurements`` measure more of a trained model than its score on the test split. The two
    trainings of the sensitivity check come first; where the task fails it, only variants of
    ``always`` are trained.
    """
    cells = []
    idle = idle_after_pilot(work)
    for seed in range(work.options.seeds):
        name = f"{work.question}:{work.name}:{seed}"
        arms = shuffled(work.options.arms_for(work.name), name)
        if idle and seed == FIRST_SEED:
            arms.sort(key=lambda arm: arm not in PAIR)
        for arm in arms:
            cell = arm_cell(work, arm, seed, measurements)
            tried = (seed == FIRST_SEED and arm in PAIR) or arm in always
            # the first seed decides the rate of all, and the pair whether others are trained
            first = () if seed == FIRST_SEED else (key_of(work, arm, FIRST_SEED),)
            pair = () if tried or idle is None else (key_of(work, one, FIRST_SEED) for one in PAIR)
            cell = replace(cell, beside=True, needs=(*first, *pair))
            cells.append(cell if tried else replace(cell, idle=idle))
    return cells


def key_of(work: LongWork, arm: str, seed: int) -> str:
    """The key of the cell that trains a variant with a seed."""
    return f"{work.question}/{work.name}/{seed}/{slug(arm)}"


def arm_cell(work: LongWork, arm: str, seed: int, measurements: Sequence[Measurement] = ()) -> Cell:
    """Train one variant with one seed, evaluate it, and record the cost."""
    labels: Labels = {"question": work.question, "task": work.name, "arm": arm, "seed": seed}

    def record(trained: Trained) -> list[Record]:
        model = trained.model.to(device())  # one that was read back is not there
        records = score_records(evaluate(model, work.task, batch_size=32), labels)
        records += [record for measure in measurements for record in measure(model, work, labels)]
        count = len(work.task.validation)
        curve = trained.curve(labels, lambda entry: {"epoch": float(entry["epoch"])}, count)
        return [*records, *curve, *trained.records(labels)]

    return training_cell(
        key_of(work, arm, seed),
        partial(work.tuned, arm),
        seed,
        record,
        thread_count=work.options.thread_count,
        weight=_seconds(work, arm, seed, len(measurements)),
    )


def _seconds(work: LongWork, arm: str, seed: int, more: int) -> float:
    """A first guess from FLOPs: linear layers, and the square of the length where a variant is
    dense.

    Counts training (the first seed's at every rate), validation after each epoch, and evaluation
    on test inputs of the same lengths.
    """
    task, recipe = work.task, work.recipe(0)
    sizes = {"long_range": (4, 128, 256)}.get(work.model, (4, 64, 128))
    layers, width, inner = sizes
    linear = layers * (8 * width**2 + 4 * width * inner)

    def cost(examples: Examples) -> float:
        lengths = examples.lengths if task.kind == "tokens" else [task.tokens] * len(examples)
        squared = 4 * layers * width if arm == DENSE else 0
        return float(sum(length * (linear + squared * length) for length in lengths))

    epoch = FORWARD_AND_BACK * cost(task.train) + cost(task.validation)
    pace = TYPICAL_FLOPS if device().type == "cpu" else ACCELERATED_FLOPS
    evaluated = (1 + more) * cost(task.test)
    return 2.0 + (trainings(work.rates, seed) * recipe.epochs * epoch + evaluated) / pace
