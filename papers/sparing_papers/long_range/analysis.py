"""Means over seeds, paired differences, and which tasks pass the sensitivity check."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sparing.core.record import Label, Record
from sparing.experiment.records import RecordTable
from sparing.experiment.summary import Key, Seeds, Summary, summarise, values, with_arm
from sparing.measure.statistics import mean_difference
from sparing_papers.long_range.arms import DENSE, UNIFORM
from sparing_papers.long_range.work import ABOVE_CHANCE


def resolution(records: Iterable[Record]) -> float:
    """The smallest step of a score: one answer of all; 0 where records have no count."""
    counts = [r.count for r in records if r.unit == "share"]
    return 1 / max(counts) if counts and max(counts) > 1 else 0.0


SUMMARY = Summary(
    baselines=(DENSE, UNIFORM),
    free=("method",),
    left_out=("validation_score", "answers", "noisy_answers", "learning_rate"),
    uncompared=("layer_error",),  # what it is off from is dense attention already
    step=resolution,
)


def learned(by_seed: Mapping[Any, float], chance: float, step: float = 0.0) -> bool:
    """Whether scores by seed are 5 points above chance in every likely seed."""
    scores = list(by_seed.values())
    if not scores:
        return False
    above = mean_difference(scores, [chance] * len(scores), resolution=step).interval
    return above is not None and above[0] >= ABOVE_CHANCE


def by_seed(records: RecordTable, name: str, **labels: Label) -> dict[int, float]:
    """Values by seed of the records that have these labels, others but the seed being free."""
    return {
        int(record.labels["seed"] or 0): float(record.value or 0.0)
        for record in records.all(name, **labels)
    }


def analyse(records: Sequence[Record], chances: Mapping[str, float]) -> list[Record]:
    """Means with Student's intervals, differences from dense attention and from ``uniform``.

    Every record with a variant and a seed counts; the rest of its labels say what it is a mean of.
    ``chances`` are the scores of guessing by task.
    """
    return [*summarise(records, SUMMARY), *_deciding(SUMMARY.grouped(records), chances)]


def _deciding(groups: Mapping[Key, Seeds], chances: Mapping[str, float]) -> Iterable[Record]:
    """For each task: is dense attention 5 points above chance, and better than ``uniform``?"""
    for (name, unit, obtained, key), dense in groups.items():
        labels = dict(key)
        if name != "score" or labels.get("arm") != DENSE or len(labels) != 3:
            continue
        uniform = groups.get((name, unit, obtained, with_arm(key, UNIFORM)), {})
        chance, step = chances.get(str(labels["task"]), 0.0), resolution(dense.values())
        decided, why = decides(values(dense), values(uniform), chance, step)
        task = {label: labels[label] for label in ("question", "task")}
        pairs = len(dense.keys() & uniform.keys())
        noted = {**task, "why": why, "chance": chance}
        yield Record("decides", float(decided), "", obtained, noted, count=pairs)


def decides(
    dense: Mapping[Any, float],
    uniform: Mapping[Any, float],
    chance: float,
    step: float = 0.0,
) -> tuple[bool, str]:
    """Whether a task passes the sensitivity check, and why or why not.

    It does where the dense variant's whole intervals are above chance and above ``uniform``.
    ``step`` is the smallest step of a score: seeds that agree to an answer are not without spread.
    """
    seeds = [seed for seed in dense if seed in uniform]
    if len(seeds) < 2:
        return False, "fewer than two seeds of both"
    if not learned({seed: dense[seed] for seed in seeds}, chance, step):
        return False, "softmax is not 5 points above chance by its whole interval"
    pairs = [dense[n] for n in seeds], [uniform[n] for n in seeds]
    over = mean_difference(*pairs, resolution=step).interval
    if over is None or over[0] <= 0:
        return False, "softmax is not clearly better than uniform"
    return True, "softmax is above chance and better than uniform"
