"""The variants of the AdaAttention study side by side: speed, score, FLOPs, training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from sparing.core.record import Record
from sparing.experiment.records import RecordTable
from sparing.report import wording
from sparing.report.cells import Cell, Column, Row, Tone
from sparing.report.estimates import NONE
from sparing_papers.adaattention import findings
from sparing_papers.adaattention.names import DENSE, FULL, MEAN, name_of_arm
from sparing_papers.adaattention.page.texts import (
    factor,
    longer,
    of_full,
    two_digits,
    whole_share,
)

CellOf = Callable[[RecordTable, Sequence[str], str], Cell]
_BASELINE, _NOT_MEASURED = Cell("baseline"), Cell("not measured", (), "missing")
_NOTHING = Cell(NONE, (), "missing")


def arm_columns() -> list[Column]:
    """The columns of ``arm_rows``."""
    return [column for column, _ in _COLUMNS]


def arm_rows(records: RecordTable, tasks: Sequence[str]) -> list[Row]:
    """One row a variant, in the study's order; INT8 forms last. ``tasks`` have every variant."""
    return [
        Row(
            name_of_arm(arm),
            arm == FULL,
            "",
            {column.key: cell(records, tasks, arm) for column, cell in _COLUMNS},
        )
        for arm in findings.arms_of(records)
        if arm != DENSE
    ]


def _cell(record: Record | None, form: Callable[[float], str], missing: Cell = _NOTHING) -> Cell:
    """A record in this form, without its interval."""
    if record is None or record.value is None:
        return missing
    text, value = form(float(record.value)), float(record.value)
    return Cell(text, (), "neutral", value, record.interval, record.obtained)


def _tone(record: Record, level: float) -> Tone:
    tones: dict[str, Tone] = {"above": "gain", "below": "loss", "": "neutral"}
    return tones[findings.side_of(record, level)]


def _speed(records: RecordTable, tasks: Sequence[str], arm: str) -> Cell:
    record = findings.speed(records, arm)
    if arm == FULL:
        return _BASELINE
    cell = _cell(record, factor, _NOT_MEASURED)
    if record is None or record.interval is None:
        return cell
    return replace(
        cell, notes=(" to ".join(map(factor, record.interval)),), tone=_tone(record, 1.0)
    )


def _score(records: RecordTable, tasks: Sequence[str], arm: str) -> Cell:
    record = records.find("score", arm=arm, task=MEAN)
    return _cell(record, wording.share, _NOT_MEASURED)


def _difference(records: RecordTable, tasks: Sequence[str], arm: str) -> Cell:
    record = findings.difference(records, arm)
    if arm == FULL:
        return _BASELINE
    ends = () if record is None or record.interval is None else record.interval
    cell = _cell(record, lambda value: f"{wording.points(value, *ends)} points", _NOT_MEASURED)
    if record is None or record.value is None or record.interval is None:
        return cell
    notes = (wording.points_interval(record.value, record.interval),)
    return replace(cell, notes=notes, tone=_tone(record, 0.0))


def _latency(of: str) -> CellOf:
    def cell(records: RecordTable, tasks: Sequence[str], arm: str) -> Cell:
        return _cell(findings.latency(records, tasks, arm, of), wording.latency)

    return cell


def _flops(records: RecordTable, tasks: Sequence[str], arm: str) -> Cell:
    share = findings.flops_share(records, tasks, arm)
    if share is None:
        return _NOTHING
    return Cell(of_full(share), (), "neutral", share, None, "measured")


def _heads(records: RecordTable, tasks: Sequence[str], arm: str) -> Cell:
    cell = _cell(records.find("head_score", arm=arm, task=MEAN), two_digits)
    cut = records.value("cut_share", arm=arm, task=MEAN)
    if cell is _NOTHING or cut is None:
        return cell
    return replace(cell, notes=(f"{whole_share(cut)} cut",))


def _training(records: RecordTable, tasks: Sequence[str], arm: str) -> Cell:
    """The training time over full's, as per cent longer."""
    record = findings.training_ratio(records, tasks, arm)
    if arm == FULL:
        return _BASELINE
    cell = _cell(record, lambda value: f"{longer(value)} %")
    if record is None or record.interval is None:
        return cell
    return replace(cell, notes=(" to ".join(map(longer, record.interval)),))


_COLUMNS: tuple[tuple[Column, CellOf], ...] = (
    (Column("speed", "Speed", "whole model"), _speed),
    (Column("score", "Score", "test"), _score),
    (Column("difference", "Difference", "to full"), _difference),
    (Column("p50", "p50", "one input"), _latency("p50")),
    (Column("p99", "p99"), _latency("p99")),
    (Column("flops", "FLOPs", "executed"), _flops),
    (Column("scores", "Mean score", "heads cut"), _heads),
    (Column("training", "Training", "time, beside full"), _training),
)
