"""The parts of a page around its table and figures."""

from __future__ import annotations

from collections.abc import Sequence

from sparing.compare.page import lookups, prose
from sparing.compare.page.lineup import Lineup
from sparing.compare.page.tables import crossing_words
from sparing.core.record import Record
from sparing.report import blocks as kit
from sparing.report import wording
from sparing.report.blocks import Block, on_one_line, text_of
from sparing.report.cells import Column
from sparing.report.facts import dense_name
from sparing.report.run import Run
from sparing.report.table import Column as TableColumn
from sparing.report.table import table

LONGEST_HEAD_NOTE = 18


def headline(run: Run) -> list[str]:
    """The few facts above the verdict."""
    config, task, seeds = run.config, run.config["task"], lookups.seeds(run)
    facts = [str(task[key]) for key in ("name", "kind") if task.get(key)]
    tokens = lookups.task_tokens(run)
    facts += [wording.length(tokens)] if tokens else []
    facts.append(wording.count_of(len(run.table.arms), "variant"))
    facts += [wording.count_of(seeds, "seed")] if seeds else []
    if isinstance(config.get("started"), str):
        facts.append(config["started"][:10])
    return [fact for fact in map(on_one_line, facts) if fact != kit.name_of(run)]


def notices(run: Run) -> list[str]:
    """What a reader must know before believing a number here."""
    notes, seeds, arms = kit.busy_notices(run), lookups.seeds(run), run.config["arms"]
    done, planned = sum(len(lookups.accuracies(run, arm)) for arm in arms), len(arms) * seeds
    if done < planned:
        trainings = wording.count_of(planned, "training")
        notes.append(prose("incomplete", done=f"{done:,}", planned=trainings))
    if seeds == 1:
        notes.append(prose("one-seed"))
    noted = (str(r.labels.get("told")) for r in run.records if r.name == "meter_note")
    return [*notes, *dict.fromkeys(noted), *kit.data_notices(run)]


def caption(columns: Sequence[Column]) -> tuple[list[Column], str]:
    """The columns with their short notes, and the long notes as sentences for below.

    Columns that were taken at one size share a sentence.
    """
    long: dict[str, list[str]] = {}
    for column in columns:
        if len(column.note) > LONGEST_HEAD_NOTE:
            long.setdefault(column.note, []).append(column.title)
    sentences = [
        f"{wording.listing([titles[0], *map(_lowered, titles[1:])], 9)}: {note}."
        for note, titles in long.items()
    ]
    short = [Column(c.key, c.title, "" if c.note in long else c.note) for c in columns]
    return short, " ".join(sentences)


def _lowered(title: str) -> str:
    """The title in small letters, unless it begins with an abbreviation such as FLOPs."""
    return title if title[:2].isupper() else title.lower()


def table_words(arms: Lineup) -> str:
    """How a table of many variants is ordered, and what its grey rows are; else empty."""
    if not arms.crowded:
        return ""
    return prose("by-family") + (f" {prose('grey-rows')}" if arms.beaten else "")


def crossings(run: Run) -> list[tuple[str, str]]:
    """Each variant with the length from which its attention core is faster, shortest first."""
    lines: list[tuple[float, str, str]] = []
    for arm in lookups.others(run):
        newest = lookups.crossover(run, arm)
        if newest is None:
            continue
        if newest.value is not None:
            lines.append((newest.value, arm, f"faster from {crossing_words(run, arm)} on"))
            continue
        longest = newest.labels.get("longest_tokens")
        until = f" up to {wording.length(longest)}" if isinstance(longest, int) else ""
        lines.append((float("inf"), arm, f"not faster{until}"))
    return [(arm, text) for _, arm, text in sorted(lines)]


def shares(run: Run) -> list[tuple[str, str, str]]:
    """(tokens, attention's share of the model's time, largest gain) as texts, by length."""
    lines = []
    for tokens in lookups.lengths(run, "attention_share"):
        share = run.table.value("attention_share", tokens=tokens)
        gain = run.table.value("largest_gain", tokens=tokens)
        shown = "not measured" if gain is None else wording.factor(gain)
        lines.append((f"{tokens:,}", wording.share_of_gain(share or 0.0), shown))
    return lines


def blocks(run: Run) -> list[Block]:
    """Goals, failed cells and the papers' claims; the goals always, the others if there are any."""
    return [kit.goals_block(run), *kit.failed_blocks(run), *_claims(run)]


def _claims(run: Run) -> list[Block]:
    columns = [
        TableColumn("Claim", _claim_name),
        TableColumn("Paper", lambda claim: _claimed(run, claim)),
        TableColumn("Here", lambda claim: _claimed(run, _measured(run, claim))),
        TableColumn("Source", lambda claim: on_one_line(text_of(claim.labels.get("source")))),
        TableColumn("Why they differ", lambda claim: text_of(claim.labels.get("reason"))),
    ]
    claims = run.table.claims
    block = table("claims", "What the papers say", prose("claims"), claims, columns)
    return [block] if claims else []


def _claim_name(claim: Record) -> str:
    hidden = ("arm", "source", "reason")
    where = ", ".join(f"{key} {value}" for key, value in claim.labels.items() if key not in hidden)
    what = f"{claim.labels.get('arm', 'model')}: {claim.name.replace('_', ' ')}"
    return on_one_line(f"{what} ({where})" if where else what)


def _measured(run: Run, claim: Record) -> Record | None:
    labels = {key: v for key, v in claim.labels.items() if key not in ("source", "reason")}
    return run.table.find(claim.name, **labels)


def _claimed(run: Run, record: Record | None) -> str:
    if record is None or record.value is None:
        return "not measured"
    value = kit.with_unit(record.value, record.unit)
    if record.name.endswith("_ratio"):
        value += f" of {dense_name(run.config)}"
    return f"{value} ({kit.interval_text(record.interval)})" if record.interval else value
