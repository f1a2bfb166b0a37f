"""A study that looks at a finished comparison and misses a goal it must reach."""

from __future__ import annotations

import json
from dataclasses import dataclass

from sparing.experiment.goals import Goal
from sparing.experiment.registry import Study
from sparing.experiment.study import StudyResult


@dataclass(frozen=True)
class Options:
    value: float = 0.2


BUDGETS = {"quick": Options()}


def run(options, folder, *, data=None, on_progress=None, overwrite=False):
    goal = Goal("accuracy", 0.9, "share", required=True)
    judged = goal.judge(options.value, (options.value - 0.1, options.value + 0.1))
    config = json.loads((folder / "config.json").read_text())
    return StudyResult("missed", folder, config, [], [judged], [])


STUDY = Study("missed", __name__, "sparing.compare.page.build")
