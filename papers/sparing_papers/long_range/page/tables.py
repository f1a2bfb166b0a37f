"""Tables of a long-range study: scores by task and variant, and how far they are from dense."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from sparing.core.record import Label, Record
from sparing.report import wording
from sparing.report.blocks import WOULD_NEED, Block, need_text
from sparing.report.estimates import NONE, interval_text, share_text
from sparing.report.run import Run
from sparing.report.table import Column, table
from sparing_papers.long_range.page import prose
from sparing_papers.long_range.page.lookups import arms, decides, difference, mean, tasks

Goal = Mapping[str, Any]
VERDICTS = {"True": "holds", "False": "does not hold"}


def points_text(record: Record | None) -> str:
    """A difference of shares in points, with its interval."""
    return interval_text(record, lambda value: wording.signed(100 * value))


def ratio_text(record: Record | None) -> str:
    """A ratio with its interval."""
    return interval_text(record, wording.number, "x")


def with_gap(text: str, gap: str) -> str:
    """What was measured, and behind it the difference from dense attention where there is one."""
    return text if gap == NONE else f"{text}; {gap}"


def score_text(run: Run, name: str, **labels: Label) -> str:
    """A mean share, and its difference from dense attention in points."""
    gap = points_text(difference(run, name, **labels))
    return with_gap(share_text(mean(run, name, **labels)), gap)


def score_blocks(
    run: Run,
    question: str,
    title: str,
    explain: str,
    printed: Mapping[str, Mapping[str, float]] | None = None,
) -> list[Block]:
    """Every variant on every task of a question, the difference from dense behind; and what
    decides.

    ``printed`` are published scores in per cent by variant and task, shown in brackets.
    """
    names = tasks(run, question)
    if not names:
        return []

    def column(task: str) -> Column[str]:
        def cell(arm: str) -> str:
            text = score_text(run, "score", question=question, task=task, arm=arm)
            return text + _printed(printed, arm, task)

        return Column(task, cell)

    words = prose("scores", explain=explain) + (f" {prose('scores-printed')}" if printed else "")
    columns = [Column[str]("variant", str), *map(column, names)]
    scores = table(question, title, words, arms(run, question), columns)
    return [scores, _deciding(run, question, names)]


def _printed(printed: Mapping[str, Mapping[str, float]] | None, arm: str, task: str) -> str:
    score = (printed or {}).get(arm, {}).get(task)
    return "" if score is None or math.isnan(score) else f" [{score:.2f}]"


def _deciding(run: Run, question: str, names: Sequence[str]) -> Block:
    columns = (
        Column[str]("task", str),
        Column[str]("", lambda t: "decides" if decides(run, question, t)[0] else "undecided"),
        Column[str]("why", lambda t: decides(run, question, t)[1]),
    )
    title = "Sensitivity check"
    return table(f"{question}-decides", title, prose("decides"), names, columns)


def claims_block(run: Run, key: str, title: str, explain: str, kind: str) -> Block:
    """The goals of one kind (``claims`` of the configuration has it) with their verdicts."""
    kinds = run.config.get("claims") or []
    goals = [goal for goal, of in zip(run.goals, kinds, strict=False) if of == kind]
    columns = (
        Column[Goal]("Claim", lambda goal: _named(goal)[0]),
        Column[Goal]("Measured by", lambda goal: _named(goal)[1]),
        Column[Goal]("Target", lambda goal: _amount(goal.get("target"), goal)),
        Column[Goal]("Value", lambda goal: _amount(goal.get("value"), goal)),
        Column[Goal]("Interval", _ends),
        Column[Goal]("Verdict", lambda goal: VERDICTS.get(str(goal.get("met")), "undecided")),
        *([Column[Goal](WOULD_NEED, need_text)] if any(map(need_text, goals)) else ()),
    )
    return table(key, title, explain, goals, columns)


def _named(goal: Goal) -> tuple[str, str]:
    """What a claim says, and by what it is measured."""
    text, _, quantity = str(goal.get("name")).removesuffix(")").rpartition(" (")
    return text, quantity


def _ends(goal: Goal) -> str:
    ends = dict.fromkeys(_amount(end, goal) for end in goal.get("interval") or ())
    return " to ".join(ends) or NONE


def _amount(value: object, goal: Goal) -> str:
    """A number of the goal's unit in words; shares as points."""
    if not isinstance(value, int | float):
        return str(value or NONE)
    unit = str(goal.get("unit"))
    if unit == "share":
        small = abs(value) < 0.5
        return f"{wording.signed(100 * value)} points" if small else wording.share(value)
    if unit == "bytes":
        return wording.size_of_bytes(value)
    if unit == "ratio":
        return f"{wording.number(value)}x"
    return wording.trimmed(value) + (f" {unit}" if unit else "")
