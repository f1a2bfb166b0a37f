"""A study of one cell that misses a goal it must reach."""

from __future__ import annotations

from dataclasses import dataclass

from sparing.core.record import Record
from sparing.experiment.claims import Goal
from sparing.experiment.conduct import Experiment
from sparing.experiment.registry import Study
from sparing.experiment.run import Cell
from sparing.experiment.study import base_config


@dataclass(frozen=True)
class Options:
    value: float = 0.2


BUDGETS = {"quick": Options()}


def prepare(options, folder, data):
    goal = Goal("accuracy", 0.9, "share", required=True)
    decided = goal.decide(options.value, (options.value - 0.1, options.value + 0.1))
    config = base_config(__name__, {}) | {"name": "missed", "arms": ["a"], "baseline": "a"}
    look = Cell("look", lambda: [Record("looked", 1.0, "", "measured")])
    return Experiment(__name__, config, lambda run: [look], lambda records: [decided])


STUDY = Study(__name__, __name__, "sparing.compare.page.build")
