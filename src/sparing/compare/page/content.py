"""What a page says around its table and figures, shared by its HTML and Markdown forms."""

from __future__ import annotations

from collections.abc import Sequence

from sparing.compare.page.results import Results
from sparing.compare.page.tables import crossing_words
from sparing.core.record import Record
from sparing.report import wording
from sparing.report.blocks import (
    Block,
    busy_notices,
    data_notices,
    failed_blocks,
    goals_block,
    interval_text,
    name_of,
    on_one_line,
    text_of,
    with_unit,
)
from sparing.report.cells import Column
from sparing.report.facts import dense_name
from sparing.report.run import Run

_LONGEST_HEAD_NOTE = 18


def headline(results: Results) -> list[str]:
    """The few facts that stand above the verdict."""
    config, task = results.config, results.config["task"]
    facts = [str(task[key]) for key in ("name", "kind") if task.get(key)]
    if results.task_tokens:
        facts.append(wording.length(results.task_tokens))
    facts.append(wording.count_of(len(results.arms), "arm"))
    seeds = _seeds(config.get("seeds"))
    if seeds:
        facts.append(wording.count_of(seeds, "seed"))
    if isinstance(config.get("started"), str):
        facts.append(config["started"][:10])
    own_name = name_of(Run(config, [], [], []))
    return [fact for fact in map(on_one_line, facts) if fact != own_name]


def notices(run: Run, results: Results) -> list[str]:
    """What a reader must know before believing a number here."""
    found = busy_notices(run)
    seeds = _seeds(run.config.get("seeds"))
    planned = len(run.config["arms"]) * seeds
    done = sum(len(results.accuracies(arm)) for arm in run.config["arms"])
    if done < planned:
        found.append(
            f"This run is not complete: {done:,} of {wording.count_of(planned, 'training')} "
            "have ended. What is missing says so."
        )
    if seeds == 1:
        found.append("One seed says nothing about the spread between trainings.")
    noted = (str(r.labels.get("told")) for r in run.records if r.name == "meter_note")
    return [*found, *dict.fromkeys(noted), *data_notices(run)]


def caption(columns: Sequence[Column]) -> tuple[list[Column], str]:
    """The columns with their short notes alone, and the long ones as sentences to stand below.

    Columns that were taken at one size share a sentence.
    """
    long: dict[str, list[str]] = {}
    for column in columns:
        if len(column.note) > _LONGEST_HEAD_NOTE:
            long.setdefault(column.note, []).append(column.title)
    sentences = [
        f"{wording.listing([titles[0], *map(str.lower, titles[1:])], 9)}: {note}."
        for note, titles in long.items()
    ]
    kept = [Column(c.key, c.title, "" if c.note in long else c.note) for c in columns]
    return kept, " ".join(sentences)


def table_words(results: Results) -> str:
    """How a table of many arms is ordered, and what its grey rows are; else empty."""
    if not results.crowded:
        return ""
    words = "By family, the fastest of each first."
    if results.beaten:
        words += (
            " Grey rows: other arms, named there, are at least as accurate and at least as fast, "
            "both here and at the longest length measured."
        )
    return words


def crossings(results: Results) -> list[tuple[str, str]]:
    """Each arm with where its attention core becomes faster than the baseline's, first first."""
    found: list[tuple[float, str, str]] = []
    for arm in results.others:
        newest = results.crossover(arm)
        if newest is None:
            continue
        if newest.value is not None:
            found.append((newest.value, arm, f"faster from {crossing_words(results, arm)} on"))
            continue
        longest = newest.labels.get("longest_tokens")
        until = f" up to {wording.length(longest)}" if isinstance(longest, int) else ""
        found.append((float("inf"), arm, f"not faster{until}"))
    return [(arm, text) for _, arm, text in sorted(found)]


def shares(results: Results) -> list[tuple[str, str, str]]:
    """(tokens, attention's share of the model's time, largest gain) as texts, by length."""
    lines = []
    for tokens in results.lengths("attention_share"):
        share = results.value("attention_share", tokens=tokens)
        gain = results.value("largest_gain", tokens=tokens)
        shown = "not measured" if gain is None else wording.factor(gain)
        lines.append((f"{tokens:,}", wording.share_of_gain(share or 0.0), shown))
    return lines


def blocks(run: Run, results: Results) -> list[Block]:
    """Goals, failed cells and the papers' claims; the goals always, the others if there are any."""
    found = [goals_block(run), *failed_blocks(run)]
    if results.claims:
        found.append(_claims(results))
    return found


def _claims(results: Results) -> Block:
    rows = []
    for claim in results.claims:
        labels = {k: v for k, v in claim.labels.items() if k not in ("source", "reason")}
        where = ", ".join(f"{key} {value}" for key, value in labels.items() if key != "arm")
        what = f"{labels.get('arm', 'model')}: {claim.name.replace('_', ' ')}"
        ours = results.find(claim.name, **labels)
        rows.append(
            (
                on_one_line(f"{what} ({where})" if where else what),
                _claimed(results, claim),
                _claimed(results, ours),
                on_one_line(text_of(claim.labels.get("source"))),
                text_of(claim.labels.get("reason")),
            )
        )
    explain = "Quoted from the papers, never measured here; ours stands beside them."
    heads = ("Claim", "Paper", "Here", "Source", "Why they differ")
    return Block("claims", "What the papers say", explain, heads, tuple(rows))


def _claimed(results: Results, record: Record | None) -> str:
    if record is None or record.value is None:
        return "not measured"
    value = with_unit(record.value, record.unit)
    if record.name.endswith("_ratio"):
        value += f" of {dense_name(results.config)}"
    return f"{value} ({interval_text(record.interval)})" if record.interval else value


def _seeds(seeds: object) -> int:
    if isinstance(seeds, list):
        return len(seeds)
    return seeds if isinstance(seeds, int) else 0
