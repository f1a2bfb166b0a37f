"""The verdict of a row of a paper, from the goals and records of committed runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Any

from sparing.experiment.claims import GoalResult, decide
from sparing.experiment.forecasts.needs import Need
from sparing.experiment.records import RecordTable
from sparing.experiment.registry import find_study
from sparing.report.page import Page
from sparing.report.run import Run, read_run
from sparing_papers.overview.rows import Paper, Row

MET, MISSED, UNDECIDED, NOT_RUN, BUILT = "met", "not met", "undecided", "not run", "built"
VERDICTS = (MET, MISSED, UNDECIDED, NOT_RUN, BUILT)


@dataclass(frozen=True)
class Answer:
    """One goal or check in one run, by its short name; ``label`` distinguishes it from others."""

    run: str
    label: str
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
        """The names of all goals of the committed runs, decided or not."""
        return {str(goal["name"]) for run in self.runs.values() for goal in run.goals}

    def answers(self, row: Row) -> list[Answer]:
        """The results of the row's goals and checks in each run that measured them."""
        answers: list[Answer] = []
        for name in row.runs:
            goals = (_result(g) for g in self.runs[name].goals if names(row, str(g["name"])))
            answers += [Answer(name, goal.name.partition(":")[0], goal) for goal in goals]
            answers += [] if row.together else _checked(row, name, self.runs[name].table)
        if row.together:
            every = [record for name in row.runs for record in self.runs[name].table.records]
            answers += _checked(row, ", ".join(row.runs), RecordTable(every))
        return [answer for answer in answers if _is_measured(answer.result)]

    def verdict(self, row: Row) -> str:
        """Not met if one answer is not met, met if all are, else undecided or not run."""
        answers = [answer.result.met for answer in self.answers(row)]
        if not answers:
            described = row.here and not (row.goals or row.checks or row.reason)
            return BUILT if described else NOT_RUN
        if False in answers:
            return MISSED
        return MET if all(met is True for met in answers) else UNDECIDED


def _checked(row: Row, run: str, records: RecordTable) -> list[Answer]:
    """The row's checks, decided together."""
    decided = decide([check.claim(row.id) for check in row.checks], records)
    return [Answer(run, result.name, result) for result in decided]


def faults(results: Results) -> list[str]:
    """The faults of a paper's rows: each line names the row, or the goal without one."""
    rows, goals = results.paper.rows, results.goals()
    unnamed = sorted(goal for goal in goals if not any(names(row, goal) for row in rows))
    problems = [f"no row names the goal {goal!r}" for goal in unnamed]
    for row in rows:
        problems += [f"row {row.id!r} {fault}" for fault in _row_faults(results, row, goals)]
    return problems


def _row_faults(results: Results, row: Row, goals: set[str]) -> Iterator[str]:
    for pattern in row.goals:
        if not any(fnmatchcase(goal, pattern) for goal in goals):
            yield f"names no goal by {pattern!r}"
    labels = {answer.label for answer in results.answers(row)}
    for check in row.checks:
        if check.text not in labels:
            yield f"has no record for its check {check.text!r}"
    if (results.verdict(row) == NOT_RUN) != bool(row.reason):
        yield "was measured and has a reason why not" if row.reason else "needs a reason"


def names(row: Row, goal: str) -> bool:
    """Whether the row names this goal."""
    return any(fnmatchcase(goal, pattern) for pattern in row.goals)


def _is_measured(result: GoalResult) -> bool:
    return result.value is not None or isinstance(result.met, bool)


def _result(goal: Mapping[str, Any]) -> GoalResult:
    known = {field.name for field in fields(GoalResult)}
    given = {name: value for name, value in goal.items() if name in known}
    ends, need = given["interval"], given.get("need")
    given |= {"need": Need.from_dict(need) if need else None}
    return GoalResult(**{**given, "interval": (ends[0], ends[1]) if ends else None})
