"""One training of a long-range study: an arm on a task with a seed, judged."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sparing.core.record import Label, Record
from sparing.experiment.cells.device import device
from sparing.experiment.cells.spent import spent_records, windows
from sparing.experiment.run import Cell
from sparing.measure.machine import threads
from sparing.train import evaluate, train
from sparing_papers.long_range.answers import answers_record
from sparing_papers.long_range.arms import DENSE
from sparing_papers.long_range.pilot import PAIR, idle_after_pilot
from sparing_papers.long_range.rates import FIRST_SEED, best_rate
from sparing_papers.long_range.work import LongWork, slug

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from sparing.measure.windows import EnergyWindows
    from sparing.tasks import Examples
    from sparing.train import TrainResult

# Of training encoders as narrow as these: on one core (more in bfloat16), and on an accelerator
# (an H200 with four trainings side by side).
TYPICAL_FLOPS, ACCELERATED_FLOPS = 50e9, 10e12
FORWARD_AND_BACK = 3
Labels = dict[str, Label]
Judge = Callable[["PreTrainedModel", LongWork, Labels], list[Record]]


def training_cells(
    work: LongWork, judges: Sequence[Judge] = (), always: Sequence[str] = ()
) -> list[Cell]:
    """Seed by seed, every arm in an order drawn anew, so that pairs lie close together.

    ``judges`` ask a trained model for more than its score on the test split. The two trainings
    that tell whether the task may decide come first; where they promise nothing, only arms of
    ``always`` are trained.
    """
    found = []
    idle = idle_after_pilot(work)
    for seed in range(work.options.seeds):
        arms = list(work.options.arms_for(work.name))
        random.Random(f"{work.question}:{work.name}:{seed}").shuffle(arms)
        if idle and seed == FIRST_SEED:
            arms.sort(key=lambda arm: arm not in PAIR)
        for arm in arms:
            cell = training_cell(work, arm, seed, judges)
            tried = (seed == FIRST_SEED and arm in PAIR) or arm in always
            found.append(cell if tried else replace(cell, idle=idle))
    return found


def training_cell(work: LongWork, arm: str, seed: int, judges: Sequence[Judge] = ()) -> Cell:
    """Train one arm with one seed, judge it, and say what it took; an interrupted one goes on."""

    def do() -> list[Record]:
        labels: Labels = {"question": work.question, "task": work.name, "arm": arm, "seed": seed}
        with threads(work.options.thread_count):
            rate = best_rate(
                work.rates,
                lambda rate: _trained(work, arm, FIRST_SEED, rate),
                lambda rate: work.place(arm, FIRST_SEED, rate),
            )
            model, result, meter = _trained(work, arm, seed, rate)
            model.to(device())  # one that was read back is not there
            judged = evaluate(model, work.task, batch_size=32)
            found = [record for judge in judges for record in judge(model, work, labels)]
        if judged.right is not None:
            found.append(answers_record(judged.right, labels))
        score = Record("score", judged.score, "share", "measured", labels, count=judged.count)
        params = Record("params", model.num_parameters(), "numbers", "measured", labels)
        curve = [
            Record(
                "validation_score",
                float(point["validation_score"]),
                "share",
                "measured",
                {**labels, "epoch": float(point["epoch"])},
                count=len(work.task.validation),
            )
            for point in result.curve
        ]
        learned_at = Record("learning_rate", rate, "", "measured", labels)
        return [score, params, learned_at, *curve, *found, *spent_records(result, meter, labels)]

    key = f"{work.question}/{work.name}/{seed}/{slug(arm)}"
    return Cell(key, do, weight=_seconds(work, arm, seed, len(judges)))


def _trained(
    work: LongWork, arm: str, seed: int, rate: float
) -> tuple[PreTrainedModel, TrainResult, EnergyWindows]:
    """The model of one training, what it came to, and what it took."""
    model, meter = work.build(arm, seed), windows(work.options.watts_per_core)
    place = work.place(arm, seed, rate)
    result = train(model, work.task, work.recipe(seed, rate), output_dir=place, meter=meter)
    return model, result, meter


def _seconds(work: LongWork, arm: str, seed: int, more: int) -> float:
    """A first guess: the linear layers' arithmetic, and the square where an arm is dense.

    Of training (the first seed's at every rate), and of judging on held-out inputs of the same
    lengths: after each epoch and then.
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
    trainings = len(work.rates) if seed == FIRST_SEED else 1
    pace = TYPICAL_FLOPS if device().type == "cpu" else ACCELERATED_FLOPS
    judged = (1 + more) * cost(task.test)
    return 2.0 + (trainings * recipe.epochs * epoch + judged) / pace
