"""The arms of the AdaAttention study side by side: speed, score, arithmetic, training."""

from __future__ import annotations

from sparing.core.record import Record
from sparing.report import wording
from sparing.report.cells import Cell, Column, Row, Tone
from sparing_papers.adaattention.page.results import FULL, MEAN, AdaResults, name_of_arm
from sparing_papers.adaattention.page.tables import span

_MISSING, _NOTHING = "not measured", "\N{EN DASH}"


def arm_columns() -> list[Column]:
    """The columns of ``arm_rows``."""
    return [
        Column("speed", "Speed", "whole model"),
        Column("score", "Score", "test"),
        Column("difference", "Difference", "to full"),
        Column("p50", "p50", "one input"),
        Column("p99", "p99"),
        Column("flops", "Arithmetic", "executed"),
        Column("scores", "Mean score", "heads cut"),
        Column("training", "Training", "time, beside full"),
    ]


def arm_rows(results: AdaResults) -> list[Row]:
    """One row an arm, in the study's order; INT8 forms last."""
    return [_arm_row(results, arm) for arm in results.arms if arm != "dense"]


def _arm_row(results: AdaResults, arm: str) -> Row:
    cells = {
        "speed": _speed_cell(results, arm),
        "score": _score_cell(results, arm),
        "difference": _difference_cell(results, arm),
        "p50": _plain(results.latency(arm, "p50"), wording.latency),
        "p99": _plain(results.latency(arm, "p99"), wording.latency),
        "flops": _flops_cell(results, arm),
        "scores": _heads_cell(results, arm),
        "training": _training_cell(results, arm),
    }
    return Row(name_of_arm(arm), arm == FULL, "", cells)


def _plain(value: float | None, write: object) -> Cell:
    if value is None:
        return Cell(_NOTHING, (), "missing")
    assert callable(write)
    return Cell(str(write(value)), (), "neutral", value, None, "measured")


def _speed_cell(results: AdaResults, arm: str) -> Cell:
    if arm == FULL:
        return Cell("baseline")
    found = results.speed(arm)
    if found is None or found.value is None:
        return Cell(_MISSING, (), "missing")
    notes = () if found.interval is None else (span(found.interval),)
    text = f"{found.value:.2f}{wording.TIMES}"
    return Cell(text, notes, _tone(found, 1.0), found.value, found.interval, found.obtained)


def _tone(found: Record, even: float) -> Tone:
    if found.interval is None or found.interval[0] <= even <= found.interval[1]:
        return "neutral"
    return "gain" if (found.value or 0.0) > even else "loss"


def _score_cell(results: AdaResults, arm: str) -> Cell:
    found = results.all.find("score", arm=arm, task=MEAN)
    if found is None or found.value is None:
        return Cell(_MISSING, (), "missing")
    return Cell(wording.share(found.value), (), "neutral", found.value, None, found.obtained)


def _difference_cell(results: AdaResults, arm: str) -> Cell:
    if arm == FULL:
        return Cell("baseline")
    found = results.difference(arm)
    if found is None or found.value is None:
        return Cell(_MISSING, (), "missing")
    ends = found.interval
    notes = () if ends is None else (wording.points_interval(found.value, ends),)
    text = f"{wording.points(found.value, *(ends or ()))} points"
    return Cell(text, notes, _tone(found, 0.0), found.value, ends, found.obtained)


def _flops_cell(results: AdaResults, arm: str) -> Cell:
    ratios = []
    for task in results.ablations:
        mine = results.all.value("flops", arm=arm, task=task)
        theirs = results.all.value("flops", arm=FULL, task=task)
        if mine is not None and theirs:
            ratios.append(mine / theirs)
    if not ratios:
        return Cell(_NOTHING, (), "missing")
    value = sum(ratios) / len(ratios)
    return Cell(f"{value:.2f} of full", (), "neutral", value, None, "measured")


def _heads_cell(results: AdaResults, arm: str) -> Cell:
    score = results.all.value("head_score", arm=arm, task=MEAN)
    cut = results.all.value("cut_share", arm=arm, task=MEAN)
    if score is None:
        return Cell(_NOTHING, (), "missing")
    notes = () if cut is None else (f"{wording.share(cut, 0)} cut",)
    return Cell(wording.number(score, 2), notes, "neutral", score, None, "measured")


def _training_cell(results: AdaResults, arm: str) -> Cell:
    """The time of training against full's."""
    if arm == FULL:
        return Cell("baseline")
    record = _training(results, arm)
    if record is None or record.value is None:
        return Cell(_NOTHING, (), "missing")
    value = record.value
    text = f"{wording.signed(100 * (value - 1), 0)} %"
    if record.interval is None:
        return Cell(text, (), "neutral", value, None, record.obtained)
    low, high = (wording.signed(100 * (end - 1), 0) for end in record.interval)
    notes = (f"{low} to {high}",)
    return Cell(text, notes, "neutral", value, record.interval, record.obtained)


def _training(results: AdaResults, arm: str) -> Record | None:
    """Of the training that was done; in runs that did not time it, of one step.

    The column holds one of both alone: they do not compare.
    """
    name = "train_time_ratio" if results.all.all("train_time_ratio") else "train_step_ratio"
    found = results.all.all(name, arm=arm)
    inside = [record for record in found if record.labels.get("task") in results.ablations]
    return next(iter([*inside, *found]), None)
