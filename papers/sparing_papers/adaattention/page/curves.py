"""More tables of the AdaAttention page: by task, in batches, rotated and fewer heads, epochs."""

from __future__ import annotations

from functools import partial
from typing import Any

from sparing.core.record import Record
from sparing.experiment.records import RecordTable
from sparing.report import wording
from sparing.report.blocks import Block
from sparing.report.estimates import NONE, interval_text, points_text, value_text
from sparing.report.run import Run
from sparing.report.table import Column, table
from sparing_papers.adaattention import findings
from sparing_papers.adaattention.findings import ablations_of, difference, speed_on, tasks_of
from sparing_papers.adaattention.names import ADAPTIVE, FULL, name_of_arm
from sparing_papers.adaattention.page.texts import (
    TEXT,
    dash_or,
    factor,
    two_digits,
    whole_share,
)

_FOLLOWED = (FULL, ADAPTIVE, "literal-loss")


def task_block(run: Run, records: RecordTable) -> Block:
    """Every variant on every task: the score less full's, and the speed. Empty with one task."""
    tasks = [task for task in tasks_of(run.config) if records.find("score", arm=FULL, task=task)]

    def cell(task: str, arm: str) -> str:
        if arm == FULL:
            score = records.find("score", arm=FULL, task=task, main=True)
            metric = "" if score is None else f" ({score.labels.get('metric')})"
            return value_text(score, wording.share) + metric
        gap, speed = difference(records, arm, task), speed_on(records, arm, task)
        texts = (points_text(gap), value_text(speed, factor))
        return ", ".join(text for text in texts if text != NONE) or NONE

    columns = [
        Column("Variant", lambda arm: "full: score" if arm == FULL else name_of_arm(arm)),
        *(Column(task, partial(cell, task)) for task in tasks),
    ]
    others = [arm for arm in findings.arms_of_any_task(records) if arm != FULL]
    shown = [arm for arm in others if any(cell(task, arm) != NONE for task in tasks)]
    rows = [FULL, *shown] if len(tasks) > 1 else []
    over = "its test examples" + (" and trainings" if findings.seeds_of(run.config) > 1 else "")
    return table("tasks", "Task by task", TEXT("tasks", over=over), rows, columns)


def throughput_block(records: RecordTable) -> Block:
    """Inputs a second in batches of 32."""

    def against(record: Record) -> str:
        task, arm = record.labels["task"], record.labels["arm"]
        speed = records.find("batch_speed_up", task=task, arm=arm)
        return "baseline" if arm == FULL and speed is None else interval_text(speed, factor)

    columns: list[Column[Record]] = [
        Column("Task", lambda record: str(record.labels["task"])),
        Column("Variant", lambda record: name_of_arm(record.labels["arm"])),
        Column("Inputs a second", lambda record: value_text(record, "{:,.0f}".format)),
        Column("Against full", against),
    ]
    rows = records.all("throughput")
    return table("throughput", "Throughput", TEXT("throughput"), rows, columns)


def rotation_block(records: RecordTable) -> Block:
    """The gain of rotating heads first: untrained at several widths, then trained."""
    rows: list[Any] = []
    for share, by_basis in sorted(findings.width_differences(records).items(), reverse=True):
        first, turned = (findings.mean_alone(by_basis[basis]) for basis in ("first", "rotated"))
        rows.append((f"{whole_share(share)} of each head, untrained", first, turned))
    for arm in ("uniform", "adaptive") if rows else ():
        first, turned = difference(records, arm), difference(records, f"{arm}-rotated")
        if first is not None or turned is not None:
            rows.append((f"{name_of_arm(arm)}, trained on", first, turned))
    columns: list[Column[Any]] = [
        Column("Width", lambda row: row[0]),
        Column("First coordinates", lambda row: points_text(row[1])),
        Column("Rotated", lambda row: points_text(row[2])),
    ]
    return table("rotation", "Rotation before the cut", TEXT("rotation"), rows, columns)


def heads_block(run: Run, records: RecordTable) -> Block:
    """The validation score against heads left, without training and with training between."""
    rows: list[Any] = []
    for task in tasks_of(run.config):
        without = findings.heads_scores(records, task)
        trained = findings.stage_scores(records, task)
        rows += [
            (task, left, without.get(left), trained.get(left, (None, None)))
            for left in sorted({*without, *trained}, reverse=True)
        ]
    columns: list[Column[Any]] = [
        Column("Task", lambda row: row[0]),
        Column("Heads left", lambda row: whole_share(row[1])),
        Column("No training", lambda row: dash_or(row[2], wording.share)),
        Column("Trained between: on removal", lambda row: dash_or(row[3][0], wording.share)),
        Column("after training", lambda row: dash_or(row[3][1], wording.share)),
    ]
    return table("heads", "Fewer heads", TEXT("heads"), rows, columns)


def epoch_block(run: Run, records: RecordTable) -> Block:
    """Score, time and head scores after each epoch of training, means over seeds."""
    tasks = ablations_of(run.config)
    rows = [
        (task, arm, epoch, *means)
        for task in tasks
        for arm in _FOLLOWED
        for epoch, means in findings.epoch_means(records, task, arm).items()
    ]
    columns: list[Column[Any]] = [
        Column("Variant", lambda row: name_of_arm(row[1])),
        Column("Epoch", lambda row: f"{row[2]:g}"),
        Column("Validation", lambda row: dash_or(row[3][0], wording.share)),
        Column("One input", lambda row: dash_or(row[3][1], wording.latency)),
        Column("Mean head score", lambda row: dash_or(row[3][2], two_digits)),
        Column("Trainings", lambda row: str(row[4])),
    ]
    if len(tasks) > 1:
        columns.insert(0, Column("Task", lambda row: row[0]))
    return table("epochs", "Epoch by epoch", TEXT("epochs"), rows, columns)


def blocks(run: Run, records: RecordTable) -> list[Block]:
    """The tables that have rows."""
    made = (
        task_block(run, records),
        throughput_block(records),
        rotation_block(records),
        heads_block(run, records),
        epoch_block(run, records),
    )
    return [block for block in made if block.rows]
