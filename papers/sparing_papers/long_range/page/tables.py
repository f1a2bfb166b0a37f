"""Tables of a long-range study: scores by task and arm, and how far they are from dense."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from sparing.core.record import Label, Record
from sparing.report import wording
from sparing.report.blocks import Block
from sparing_papers.long_range.page.results import DENSE, LongResults

NONE = wording.DASH


def score_text(record: Record | None) -> str:
    """A mean share in per cent."""
    return NONE if record is None or record.value is None else f"{100 * float(record.value):.1f} %"


def points_text(record: Record | None) -> str:
    """A difference of shares in points, with its interval."""
    if record is None or record.value is None:
        return NONE
    text = wording.signed(100 * float(record.value))
    if record.interval is not None:
        low, high = (wording.signed(100 * float(end)) for end in record.interval)
        text += f" ({low} to {high})"
    return text


def ratio_text(record: Record | None) -> str:
    """A ratio with its interval."""
    if record is None or record.value is None:
        return NONE
    text = f"{wording.number(float(record.value))}x"
    if record.interval is not None:
        low, high = (wording.number(float(end)) for end in record.interval)
        text += f" ({low} to {high})"
    return text


def score_blocks(
    results: LongResults,
    question: str,
    title: str,
    explain: str,
    printed: Mapping[str, Mapping[str, float]] | None = None,
) -> list[Block]:
    """Every arm on every task of a question, the difference from dense behind; and what decides.

    ``printed`` are published scores in per cent by arm and task, which stand in brackets.
    """
    tasks, arms = results.tasks(question), results.arms(question)
    if not tasks:
        return []
    rows = []
    for arm in arms:
        cells = [arm]
        for task in tasks:
            labels: dict[str, Label] = {"question": question, "task": task, "arm": arm}
            cell = score_text(results.mean("score", **labels))
            gap = results.difference("score", labels)
            if gap is not None and arm != DENSE:
                cell += f"; {points_text(gap)}"
            cells.append(cell + _printed(printed, arm, task))
        rows.append(tuple(cells))
    words = (
        f"{explain} Means over seeds; behind each the difference from softmax in points with its "
        "95 % interval over seeds."
    )
    if printed:
        words += " In brackets what is published."
    heads = ("arm", *tasks)
    return [Block(question, title, words, heads, tuple(rows)), _deciding(results, question, tasks)]


def _printed(printed: Mapping[str, Mapping[str, float]] | None, arm: str, task: str) -> str:
    found = (printed or {}).get(arm, {}).get(task)
    return "" if found is None or math.isnan(found) else f" [{found:.2f}]"


def _deciding(results: LongResults, question: str, tasks: Sequence[str]) -> Block:
    rows = []
    for task in tasks:
        decided, why = results.decides(question, task)
        rows.append((task, "decides" if decided else "undecided", why))
    explain = (
        "A task tells mechanisms apart only where dense attention is 5 points above chance and "
        "clearly better than the mean of all values (uniform)."
    )
    return Block(
        f"{question}-decides",
        "What these tasks can tell",
        explain,
        ("task", "", "why"),
        tuple(rows),
    )


def claims_block(results: LongResults, key: str, title: str, explain: str, kind: str) -> Block:
    """The goals of one kind (``claims`` of the configuration tells it) with their verdicts."""
    words = {"True": "holds", "False": "does not hold"}
    kinds = results.run.config.get("claims") or []
    rows = []
    for goal, own in zip(results.run.goals, kinds, strict=False):
        if own != kind:
            continue
        text, _, quantity = str(goal.get("name")).removesuffix(")").rpartition(" (")
        interval, value, unit = goal.get("interval"), goal.get("value"), str(goal.get("unit"))
        rows.append(
            (
                text,
                quantity,
                _sided(goal),
                _amount(float(value), unit)
                if isinstance(value, int | float)
                else str(value or NONE),
                NONE if not interval else _ends(interval, unit),
                words.get(str(goal.get("met")), "undecided"),
            )
        )
    heads = ("Claim", "Measured by", "Asked for", "Value", "Interval", "Verdict")
    return Block(key, title, explain, heads, tuple(rows))


def _sided(goal: Mapping[str, object]) -> str:
    target = goal.get("target")
    if not isinstance(target, int | float):
        return NONE if target is None else str(target)
    return _amount(float(target), str(goal.get("unit")))


def _ends(interval: Sequence[float], unit: str) -> str:
    low, high = (_amount(float(end), unit) for end in interval)
    return low if low == high else f"{low} to {high}"


def _amount(value: float, unit: str) -> str:
    """A number of a unit in words; shares as points."""
    if unit == "share":
        return (
            f"{wording.signed(100 * value)} points" if abs(value) < 0.5 else f"{100 * value:.1f} %"
        )
    if unit == "bytes":
        return wording.size_of_bytes(value)
    if unit == "ratio":
        return f"{wording.number(value)}x"
    return wording.trimmed(value) + (f" {unit}" if unit else "")
