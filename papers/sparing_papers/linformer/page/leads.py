"""What leads the Linformer study's page: longer inputs, else language, else costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparing.core.record import Label, Record
from sparing.report.run import Run
from sparing_papers.linformer.page import prose
from sparing_papers.linformer.page.tables import SLICED, ratios
from sparing_papers.long_range.page.lookups import asks, decides, difference, named, numbers, tasks
from sparing_papers.long_range.page.tables import points_text, ratio_text

MASKED = "masked words, "
DECISIVE = ("longer", "swapped")
MET = {True: "holds", False: "fails"}
UNDECIDED = "undecided"
Lead = tuple[str, str]
"""The sentence that leads, and what it rests on."""


def lead(run: Run) -> Lead:
    """Of longer inputs where the run measured them, or nothing else leads."""
    if not asks(run, *DECISIVE):
        language = _of_language(run) if asks(run, "language") else None
        other = language or (_of_cost(run) if asks(run, "cost") else None)
        if other:
            return other
    return of_lengths(run)


@dataclass(frozen=True)
class Experiment:
    """Linformer on longer inputs in one kind of encoder, its verdict, and it in words."""

    met: str
    loses_more: bool
    text: str


def of_lengths(run: Run) -> Lead:
    """The experiment that settles most: longer inputs than training saw."""
    done = sorted([*_trained(run), *_swapped(run)], key=lambda one: one.met == UNDECIDED)
    if done:
        return lead_of(done), prose("because-scores", scores="; ".join(one.text for one in done))
    checks = [(task, decides(run, "longer", task)) for task in tasks(run, "longer")]
    reasons = "; ".join(f"{task}: {why}" for task, (decided, why) in checks if not decided)
    return lead_of(done), f": {reasons or prose('because-none')}."


def lead_of(done: Sequence[Experiment]) -> str:
    """One that fails is enough to say no; yes is said where all hold."""
    failed = [one for one in done if one.met == "fails"]
    if failed and not any(one.loses_more for one in failed):
        return prose("lead-behind")
    if failed:
        return prose("lead-fails")
    holds = done and all(one.met == "holds" for one in done)
    return prose("lead-holds") if holds else prose("lead-undecided")


def _trained(run: Run) -> Iterator[Experiment]:
    """Encoders that were trained from nothing, on tasks that pass the sensitivity check."""
    factor = max((int(factor) for factor in run.config.get("factors") or [1]), default=1)
    for task in tasks(run, "longer"):
        labels: dict[str, Label] = {"question": "longer", "task": task}
        labels |= {"arm": SLICED, "factor": factor}
        gap = difference(run, "length_score", **labels)
        if gap is not None and decides(run, "longer", task)[0]:
            met = _met(run, f"{task}, {SLICED}: score at {factor}n")
            words = _words(gap, met)
            text = prose("score-longer", task=task, factor=factor, **words)
            yield Experiment(met, _loses_more(run, labels), text)


def _swapped(run: Run) -> Iterator[Experiment]:
    """A pretrained encoder, swapped and distilled on short inputs."""
    ours: dict[str, Label] = {"question": "pretrained", "arm": "linformer"}
    for task in named(run, "length_score", "task", **ours):
        lengths = numbers(run, "length_score", "tokens", task=task, **ours)
        short, long = lengths[0], lengths[-1]
        labels: dict[str, Label] = {**ours, "task": task, "stage": "warm", "tokens": long}
        gap = difference(run, "length_score", **labels)
        if gap is not None:
            met = _met(run, f"{task}, {SLICED} in the pretrained encoder", f"score at {long}")
            words = _words(gap, met)
            text = prose("score-swapped", task=task, short=short, long=long, **words)
            yield Experiment(met, _loses_more(run, labels), text)


def _words(gap: Record, met: str) -> dict[str, str]:
    undecided = f", {UNDECIDED}" if met == UNDECIDED else ""
    return {"gap": points_text(gap), "undecided": undecided}


def _loses_more(run: Run, labels: dict[str, Label]) -> bool:
    """Whether length costs Linformer more than softmax: what is behind anyway has other reasons."""
    gap = difference(run, "length_drop", **labels)
    return gap is not None and gap.interval is not None and gap.interval[0] > 0


def _met(run: Run, start: str, within: str = "") -> str:
    """The verdict on the newest goal with a name that starts and goes on like this."""
    names = ((str(goal.get("name")), goal.get("met")) for goal in run.goals)
    met = [verdict for name, verdict in names if name.startswith(start) and within in name]
    return next((word for verdict, word in MET.items() if met and met[-1] is verdict), UNDECIDED)


def _of_language(run: Run) -> Lead | None:
    """Whether slots are enough for masked words, by the goals that are decided."""
    goals = [goal for goal in run.goals if str(goal.get("name")).startswith(MASKED)]
    decided = [goal for goal in goals if isinstance(goal.get("met"), bool)]
    if not goals:
        return None
    if not decided:
        return prose("lead-masked-undecided"), prose("because-masked-none")
    because = prose("because-masked", ratios="; ".join(map(_ratio, decided)))
    verdicts = {goal["met"] for goal in decided}
    if len(verdicts) > 1:
        return prose("lead-masked-some"), because
    return prose("lead-masked-enough") if True in verdicts else prose("lead-masked-few"), because


def _ratio(goal: Mapping[str, Any]) -> str:
    """A goal's value and interval, with the length and the slots that its name has."""
    where = str(goal["name"]).removeprefix(MASKED).partition(":")[0]
    value, ends = goal.get("value"), goal.get("interval")
    interval = (ends[0], ends[1]) if ends else None
    number = value if isinstance(value, int | float) else None
    text = ratio_text(Record("ratio", number, "ratio", "measured", {}, interval))
    return f"{text} at {where.replace(', linformer, ', ' with ')}"


def _of_cost(run: Run) -> Lead | None:
    """Its time at the longest length that was measured, over fused softmax's."""
    records = ratios(run)
    if not records:
        return None
    tokens = records[0].labels["tokens"]
    longest = [record for record in records if record.labels["tokens"] == tokens]
    times = [f"{r.labels['arm']} takes {ratio_text(r)} of its time" for r in longest]
    faster = all(r.interval is not None and r.interval[1] < 1 for r in longest)
    words = prose("lead-not-faster", tokens=tokens)
    if faster:
        words = prose("lead-faster", tokens=tokens)
    return words, f": {'; '.join(times)}."
