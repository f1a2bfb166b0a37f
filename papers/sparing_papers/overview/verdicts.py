"""The verdict of a row of a paper, from the goals and records of committed runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Any

from sparing.experiment.claims import GoalResult, decide
from sparing.experiment.registry import find_study
from sparing.report.page import Page
from sparing.report.run import Run, read_run
from sparing_papers.overview.rows import Paper, Row

MET, MISSED, UNDECIDED, NOT_RUN, BUILT = "met", "not met", "undecided", "not run", "built"
VERDICTS = (MET, MISSED, UNDECIDED, NOT_RUN, BUILT)


@dataclass(frozen=True)
class Answer:
    """One goal or check in one run; ``run`` is the run's short name."""

    run: str
    result: GoalResult


class Results:
    """The committed runs of one paper, each read once."""

    def __init__(self, paper: Paper, folder: Path) -> None:
        self.paper, self.folder = paper, folder
        self._pages: dict[str, Page] = {}

    @cached_property
    def runs(self) -> Mapping[str, Run]:
        """The runs by short name."""
        return {name: read_run(self.folder / run) for name, run in self.paper.runs.items()}

    def page(self, name: str) -> Page:
        """The page of a run."""
        if name not in self._pages:
            page: Page = find_study(self.paper.study).page(self.runs[name])
            self._pages[name] = page
        return self._pages[name]

    def goals(self) -> set[str]:
        """The names of all goals that the committed runs have decided or left open."""
        return {str(goal["name"]) for run in self.runs.values() for goal in run.goals}

    def answers(self, row: Row) -> list[Answer]:
        """What the row's goals and checks come to in each run that measured them."""
        found: list[Answer] = []
        for name in row.runs:
            run = self.runs[name]
            results = [_result(goal) for goal in run.goals if names(row, str(goal["name"]))]
            checked = decide([check.claim(row.id) for check in row.checks], run.table)
            found += [Answer(name, r) for r in (*results, *checked) if _is_measured(r)]
        return found

    def verdict(self, row: Row) -> str:
        """Not met where one answer is not, met where all are, else undecided; or not run."""
        answers = [answer.result.met for answer in self.answers(row)]
        if not answers:
            described = row.here and not (row.goals or row.checks or row.reason)
            return BUILT if described else NOT_RUN
        if False in answers:
            return MISSED
        return MET if all(met is True for met in answers) else UNDECIDED


def names(row: Row, goal: str) -> bool:
    """Whether the row names this goal."""
    return any(fnmatchcase(goal, pattern) for pattern in row.goals)


def _is_measured(result: GoalResult) -> bool:
    return result.value is not None or isinstance(result.met, bool)


def _result(goal: Mapping[str, Any]) -> GoalResult:
    known = {field.name for field in fields(GoalResult)}
    return GoalResult(**{name: value for name, value in goal.items() if name in known})
