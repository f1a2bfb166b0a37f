"""What trainings come to: means over seeds, paired differences, and which tasks tell anything."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sparing.core.record import Label, Record
from sparing.experiment.records import RecordTable
from sparing.experiment.summary import mean_record, values, with_arm
from sparing.measure.statistics import mean_difference
from sparing_papers.long_range.arms import DENSE, UNIFORM
from sparing_papers.long_range.work import ABOVE_CHANCE

Key = tuple[tuple[str, Label], ...]
FREE = ("seed", "method")  # labels in which the records of one mean may differ
NOT_AVERAGED = ("validation_score", "answers", "noisy_answers", "learning_rate")
NOT_COMPARED = ("layer_error",)  # what it is off from is dense attention already


def resolution(records: Iterable[Record]) -> float:
    """The smallest step of a score: one answer of so many; 0 where that is not told."""
    counts = [r.count for r in records if r.unit == "share"]
    return 1 / max(counts) if counts and max(counts) > 1 else 0.0


def learned(by_seed: Mapping[int, float], chance: float, step: float = 0.0) -> bool:
    """Whether scores by seed lie 5 points above chance in every likely seed."""
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

    Every record with an arm and a seed counts; the rest of its labels say what it is a mean of.
    ``chances`` are the scores of guessing by task.
    """
    groups = _groups(records)
    summary = []
    for (name, unit, key), by_seed_of_arm in groups.items():
        scores, step = values(by_seed_of_arm), resolution(by_seed_of_arm.values())
        labels = {**dict(key), "over": "seeds"}
        summary.append(mean_record(f"mean_{name}", list(scores.values()), unit, labels, step=step))
        for other in () if name in NOT_COMPARED else (DENSE, UNIFORM):
            rival = values(groups.get((name, unit, with_arm(key, other)), {}))
            gaps = [value - rival[seed] for seed, value in scores.items() if seed in rival]
            if gaps and other != labels["arm"]:
                less = {**labels, "less": other}
                summary.append(mean_record(f"{name}_difference", gaps, unit, less, step=step))
    return [*summary, *_deciding(groups, chances)]


def _groups(records: Sequence[Record]) -> dict[tuple[str, str, Key], dict[int, Record]]:
    """Records of arms by name, unit and labels but the seed, then by seed."""
    groups: dict[tuple[str, str, Key], dict[int, Record]] = {}
    for record in records:
        labels = record.labels
        known = record.value is not None and record.name not in NOT_AVERAGED
        if known and "arm" in labels and labels.get("seed") is not None:
            key = tuple(sorted((k, v) for k, v in labels.items() if k not in FREE))
            seeds = groups.setdefault((record.name, record.unit, key), {})
            seeds[int(labels["seed"] or 0)] = record
    return groups


def _deciding(
    groups: Mapping[tuple[str, str, Key], Mapping[int, Record]], chances: Mapping[str, float]
) -> Iterable[Record]:
    """For each task: is dense attention 5 points above chance, and better than ``uniform``?"""
    for (name, _, key), dense in groups.items():
        labels = dict(key)
        if name != "score" or labels.get("arm") != DENSE or len(labels) != 3:
            continue
        uniform = groups.get((name, "share", with_arm(key, UNIFORM)), {})
        chance, step = chances.get(str(labels["task"]), 0.0), resolution(dense.values())
        decided, why = decides(values(dense), values(uniform), chance, step)
        task = {label: labels[label] for label in ("question", "task")}
        pairs = len(dense.keys() & uniform.keys())
        noted = {**task, "why": why, "chance": chance}
        yield Record("decides", float(decided), "", "measured", noted, count=pairs)


def decides(
    dense: Mapping[int, float],
    uniform: Mapping[int, float],
    chance: float,
    step: float = 0.0,
) -> tuple[bool, str]:
    """Whether a task passes the sensitivity check, and why or why not.

    It does where the dense arm's whole intervals are above chance and above ``uniform``. ``step``
    is the smallest step of a score: seeds that agree to an answer are not without spread.
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
