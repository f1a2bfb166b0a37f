"""The cells that train the models of several tasks together, with one scorer or with one each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from sparing.core.record import Labels, Record, measured
from sparing.experiment.run import Cell
from sparing.measure.machine import threads
from sparing_papers.adaattention.arms import ARMS, Work
from sparing_papers.adaattention.cells.answers import answers_on_test, keep, scored
from sparing_papers.adaattention.cells.training import head_scores
from sparing_papers.adaattention.further.sharing import train_together
from sparing_papers.adaattention.names import ADAPTIVE, DENSE, ONE, OWN
from sparing_papers.adaattention.options import Options
from sparing_papers.adaattention.plan import arm_seconds


def shared_cells(options: Options, works: Sequence[Work]) -> list[Cell]:
    """Both trainings of each seed, in turn first; none where no tasks share a scorer."""
    chosen = [work for work in works if work.name in options.shared]
    adaptive = next(arm for arm in ARMS if arm.name == ADAPTIVE)
    cells = []
    for number, seed in enumerate(options.seeds if chosen else ()):
        weight = sum(arm_seconds(work, adaptive) for work in chosen)
        for arm in (ONE, OWN) if number % 2 else (OWN, ONE):
            cell = _cell(chosen, arm, seed, options)
            cells.append(replace(cell, weight=weight))
    return cells


def _cell(works: Sequence[Work], arm: str, seed: int, options: Options) -> Cell:
    def do() -> list[Record]:
        with threads(options.thread_count):
            return _records(works, arm, seed, options.shared_weight)

    needs = tuple(f"{work.name}/train/{DENSE}/{seed}" for work in works)
    return Cell(f"shared/{arm}/{seed}", do, beside=True, needs=needs)


def _records(works: Sequence[Work], arm: str, seed: int, weight: float) -> list[Record]:
    """Of each task: time and steps, head scores, test scores and answers."""
    models, trained = train_together(works, seed, arm, weight)
    records, answers = list[Record](), partial(keep, arm=arm, seed=seed)
    for work in works:
        labels: Labels = {"arm": arm, "task": work.name, "seed": seed}
        model = models[work.name].eval()
        records += measured(labels, "s", train_time_s=trained.seconds[work.name])
        early: Labels = {**labels, "early": False}
        records += measured(early, "", steps=float(trained.steps[work.name]))
        records += head_scores(model, work, labels)
        outputs = answers_on_test(model, work)
        records += [*scored(work, arm, seed, outputs), answers(work, outputs=outputs)]
    return records
