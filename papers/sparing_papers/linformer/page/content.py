"""What the Linformer study's page says around its tables: verdict, notices, facts."""

from __future__ import annotations

from typing import Any

from sparing.core.record import Label, Record
from sparing.report import blocks, wording
from sparing.report.facts import facts as run_facts
from sparing.report.run import Run
from sparing.report.sections import Verdict
from sparing_papers.linformer.page import prose
from sparing_papers.linformer.page.figures import error_length
from sparing_papers.linformer.page.leads import DECISIVE, lead
from sparing_papers.linformer.page.matrices import THEOREMS, growth_words, plain_text
from sparing_papers.linformer.page.tables import ratios
from sparing_papers.long_range.page.lookups import (
    arms,
    asks,
    decides,
    difference,
    named,
    progress,
    rates,
    seeds_in_words,
    tasks,
)
from sparing_papers.long_range.page.tables import points_text, ratio_text

OF_TASKS = ("longer", "sharing", "shift", "spectrum", "error")
BACKBONE = "4 layers, width 128, feed-forward 256, 4 heads of 32"


def headline(run: Run) -> list[str]:
    """The few facts above the verdict."""
    names = list(run.config.get("tasks") or {}) if asks(run, *OF_TASKS) else []
    count, started = len(arms(run, "longer")), run.config.get("started")
    parts = [", ".join(names), wording.count_of(count, "variant") if count else ""]
    parts += [*seeds_in_words(run), started[:10] if isinstance(started, str) else ""]
    return [part for part in parts if part]


def verdict(run: Run) -> Verdict:
    """Whether few slots hold on longer inputs, then what else was answered."""
    second = [_counted(run), *_trained(run), *_ranks(run), *_errors(run), *_vacuous(run)]
    if asks(run, *DECISIVE, "language"):
        second += _costs(run)
    return Verdict(*lead(run), tuple(second))


def _counted(run: Run) -> str:
    verdicts = [goal.get("met") for goal in run.goals]
    if not verdicts:
        return prose("counted-none")
    met, missed = verdicts.count(True), verdicts.count(False)
    rest = len(verdicts) - met - missed
    return prose("counted", goals=len(verdicts), met=met, missed=missed, rest=rest)


def _trained(run: Run) -> list[str]:
    """How Linformer does at the length of training, where a task passes the sensitivity check."""
    gaps = []
    for task in tasks(run, "longer"):
        gap = difference(run, "score", question="longer", task=task, arm="linformer")
        if gap is not None and decides(run, "longer", task)[0]:
            gaps.append(f"{task} {points_text(gap)}")
    return [prose("at-training", gaps="; ".join(gaps))] if gaps else []


def _ranks(run: Run) -> list[str]:
    growth = [
        f"{record.labels['source']} {plain_text(record)}: {growth_words(record)}"
        for record in run.table.all("exponent", of="effective_rank", range="trained")
    ]
    return [f"Effective rank ~ n^a, a: {'; '.join(growth)}."] if growth else []


def _errors(run: Run) -> list[str]:
    """What learning gains."""
    sentences = []
    for source in named(run, "learned_gain", "source"):
        tokens, beyond = error_length(run, source)
        slots = run.table.values_of("learned_gain", "slots", source=source, tokens=tokens)
        most = max(int(count or 0) for count in slots)
        at: dict[str, Label] = {"source": source, "tokens": tokens, "slots": most}
        learned, random = (
            plain_text(run.table.find("mean_output_error", method=method, **at))
            for method in ("learned", "random")
        )
        errors = {"learned": learned, "random": random}
        sentences.append(prose("errors-learned", beyond=beyond, **at, **errors))
    return sentences


def _vacuous(run: Run) -> list[str]:
    """How many of the bounds say nothing."""
    cases = []
    for theorem in THEOREMS:
        bounds = run.table.matching("mean_bound", {"theorem": theorem})
        empty = sum(bound.value is None or bound.value >= 1 for bound in bounds)
        if bounds:
            counts = {"empty": empty, "bounds": len(bounds)}
            cases.append(prose("bounds-case", theorem=theorem, **counts))
    return [prose("bounds", cases=", ".join(cases))] if cases else []


def _costs(run: Run) -> list[str]:
    longest: dict[str, Record] = {}
    for record in ratios(run):
        longest.setdefault(str(record.labels["arm"]), record)
    times = [
        prose("time", arm=arm, ratio=ratio_text(record), tokens=record.labels["tokens"])
        for arm, record in longest.items()
    ]
    return [prose("times", times="; ".join(times))] if times else []


def notices(run: Run) -> list[str]:
    """What a reader must know before believing a number here."""
    undecided = []
    for question in ("longer", "shift"):
        for task in tasks(run, question):
            decided, why = decides(run, question, task)
            if not decided:
                undecided.append(prose("undecided-task", task=task, question=question, why=why))
    return [*blocks.busy_notices(run), *undecided, *progress(run), *blocks.data_notices(run)]


def facts(run: Run) -> list[tuple[str, str]]:
    """How each task was trained on, then task and machine."""
    recipes, pretrained = run.config.get("tasks") or {}, run.config.get("pretrained")
    return [
        *((f"{task}, training", _recipe(recipe)) for task, recipe in recipes.items()),
        *(
            (f"{task}: learning rates chosen", text)
            for task, text in rates(run, "longer", "sharing")
        ),
        *([("pretrained", str(pretrained))] if pretrained else []),
        ("backbone", BACKBONE),
        *run_facts(run),
    ]


def _recipe(recipe: dict[str, Any]) -> str:
    return ", ".join(f"{key.replace('_', ' ')} {_number(value)}" for key, value in recipe.items())


def _number(value: object) -> str:
    if isinstance(value, float):
        return wording.trimmed(value)
    return f"{value:,}" if isinstance(value, int) else str(value)
