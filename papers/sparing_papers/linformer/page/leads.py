"""What leads the page of a run that was not asked about longer inputs: language, or costs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparing.core.record import Record
from sparing_papers.linformer.page.tables import ratios
from sparing_papers.long_range.page.results import LongResults
from sparing_papers.long_range.page.tables import ratio_text

MASKED = "masked words, "
DECISIVE = ("longer", "swapped")


def leads(results: LongResults) -> tuple[str, str] | None:
    """The sentence that leads and what it rests on, where longer inputs are not asked about."""
    if results.asks(*DECISIVE):
        return None
    language = _of_language(results) if results.asks("language") else None
    return language or (_of_cost(results) if results.asks("cost") else None)


def _of_language(results: LongResults) -> tuple[str, str] | None:
    """Whether slots are enough for masked words, by the goals that are decided."""
    goals = [g for g in results.run.goals if str(g.get("name")).startswith(MASKED)]
    decided = [goal for goal in goals if isinstance(goal.get("met"), bool)]
    if not goals:
        return None
    if not decided:
        why = ": no goal of perplexity is decided so far."
        return "Undecided whether Linformer's slots are enough for masked words", why
    verdicts = {goal["met"] for goal in decided}
    told = "; ".join(map(_ratio, decided))
    words = "are enough" if verdicts == {True} else "are too few"
    lead = f"Linformer's slots {words} for masked words"
    if len(verdicts) > 1:
        lead = "Linformer's slots are enough for masked words in some cases, and not in others"
    return lead, f": its perplexity over softmax's is {told}."


def _ratio(goal: Mapping[str, Any]) -> str:
    """A goal's value and interval, with the length and the slots that its name tells."""
    where = str(goal["name"]).removeprefix(MASKED).partition(":")[0]
    value, ends = goal.get("value"), goal.get("interval")
    interval = (ends[0], ends[1]) if ends else None
    number = value if isinstance(value, int | float) else None
    told = ratio_text(Record("ratio", number, "ratio", "measured", {}, interval))
    return f"{told} at {where.replace(', linformer, ', ' with ')}"


def _of_cost(results: LongResults) -> tuple[str, str] | None:
    """Its time at the longest length that was measured, over fused softmax's."""
    found = list(ratios(results))
    if not found:
        return None
    tokens = found[0].labels["tokens"]
    longest = [r for r in found if r.labels["tokens"] == tokens]
    lead = f"Linformer is not shown to be faster than fused softmax at {tokens:,} tokens"
    if all(r.interval is not None and r.interval[1] < 1 for r in longest):
        lead = f"Linformer is faster than fused softmax at {tokens:,} tokens"
    told = "; ".join(f"{r.labels['arm']} takes {ratio_text(r)} of its time" for r in longest)
    return lead, f": {told}."
