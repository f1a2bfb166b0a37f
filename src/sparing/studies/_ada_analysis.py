"""What follows from the cells of the AdaAttention study: scores, differences, means over tasks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import fmean

import torch
from torch import Tensor

from sparing.core.record import Label, Record
from sparing.studies._ada_arms import FULL, Work
from sparing.studies._ada_cells import INT8, kept_answers
from sparing.tasks._scores import metric

RESAMPLES = 2_000
MEAN = "mean"


def analyse(records: Sequence[Record], works: Sequence[Work], seeds: Sequence[int]) -> list[Record]:
    """Scores over seeds and tasks, their differences to full, and mean speeds."""
    records = [record for record in records if record.obtained != "paper"]
    arms = list(dict.fromkeys(str(r.labels["arm"]) for r in records if r.name == "seed_score"))
    found = []
    for arm in arms:
        found += _scores(records, arm, [work.name for work in works])
        if arm != FULL:
            found += _differences(works, seeds, arm)
        for name in ("head_score", "cut_share", "width_share"):
            found += _mean_of(records, name, arm)
    return [*found, *_speeds(records)]


def _scores(records: Sequence[Record], arm: str, tasks: Iterable[str]) -> list[Record]:
    """The mean over seeds of each task, and the mean of these."""
    found, means = [], []
    for task in tasks:
        own = [
            r.value
            for r in records
            if r.name == "seed_score" and r.labels["arm"] == arm and r.labels["task"] == task
        ]
        values = [value for value in own if value is not None]
        if not values:
            continue
        means.append(fmean(values))
        labels: dict[str, Label] = {"arm": arm, "task": task}
        labels |= {"lowest": min(values), "highest": max(values)}
        found.append(Record("score", means[-1], "score", "measured", labels, count=len(values)))
    if means:
        labels = {"arm": arm, "task": MEAN}
        found.append(Record("score", fmean(means), "score", "measured", labels, count=len(means)))
    return found


def _differences(works: Sequence[Work], seeds: Sequence[int], arm: str) -> list[Record]:
    """To the full model trained on as long, example by example, for each task and their mean.

    Intervals are bootstraps over test examples, both arms and all seeds on the same draws; 95 %.
    """
    found, values, spreads = [], [], []
    for work in works:
        pairs = [(kept_answers(work, arm, seed), kept_answers(work, FULL, seed)) for seed in seeds]
        whole = [(ours, full) for ours, full in pairs if ours is not None and full is not None]
        if not whole:
            continue
        value, spread = _spread(work, whole)
        values.append(value)
        spreads.append(spread)
        found.append(_difference(arm, work.name, value, spread, len(whole)))
    if values:
        mean = torch.stack(spreads).mean(0)
        found.append(_difference(arm, MEAN, fmean(values), mean, len(values)))
    return found


def _spread(work: Work, pairs: Sequence[tuple[Tensor, Tensor]]) -> tuple[float, Tensor]:
    """The difference and its resampled values, each a mean over seeds."""
    labels, score = work.task.test.labels, metric(work.task.metric).score
    value = fmean(score(ours, labels) - score(full, labels) for ours, full in pairs)
    generator = torch.Generator().manual_seed(0)
    draws = torch.randint(len(labels), (RESAMPLES, len(labels)), generator=generator)
    if work.task.metric == "accuracy":
        gaps = torch.stack(
            [
                (o.argmax(-1) == labels).double() - (f.argmax(-1) == labels).double()
                for o, f in pairs
            ]
        )
        return value, gaps.mean(0)[draws].mean(1)
    resampled = [
        fmean(score(ours[d], labels[d]) - score(full[d], labels[d]) for ours, full in pairs)
        for d in draws
    ]
    return value, torch.tensor(resampled, dtype=torch.float64)


def _difference(arm: str, task: str, value: float, spread: Tensor, count: int) -> Record:
    ends = torch.tensor([0.025, 0.05, 0.975], dtype=torch.float64)
    low, one_sided, high = spread.double().quantile(ends).tolist()
    labels: dict[str, Label] = {"arm": arm, "task": task, "one_sided": one_sided}
    return Record("score_difference", value, "score", "measured", labels, (low, high), count)


def _mean_of(records: Sequence[Record], name: str, arm: str) -> list[Record]:
    """The mean over tasks and seeds."""
    values = [
        r.value
        for r in records
        if r.name == name and r.labels.get("arm") == arm and r.value is not None
    ]
    if not values:
        return []
    labels: dict[str, Label] = {"arm": arm, "task": MEAN}
    return [Record(name, fmean(values), "share", "measured", labels, count=len(values))]


def _speeds(records: Sequence[Record]) -> list[Record]:
    """The geometric mean over tasks of the speeds of all inputs; of one task, with its interval.

    An arm that was timed with the INT8 forms too counts as it was timed with its own group.
    """
    own: dict[str, list[Record]] = {}
    for r in sorted(records, key=lambda r: r.labels.get("group") == INT8):
        if r.name == "speed_up" and r.labels.get("inputs") == "all" and r.value:
            place = own.setdefault(str(r.labels["arm"]), [])
            if all(each.labels["task"] != r.labels["task"] for each in place):
                place.append(r)
    found = []
    for arm, speeds in own.items():
        labels: dict[str, Label] = {"arm": arm, "task": MEAN, "inputs": "all"}
        value = math.exp(fmean(math.log(r.value or 1.0) for r in speeds))
        interval = None
        if all(r.interval for r in speeds):
            sides = [[math.log(r.interval[side]) for r in speeds if r.interval] for side in (0, 1)]
            interval = (math.exp(fmean(sides[0])), math.exp(fmean(sides[1])))
        found.append(Record("speed_up", value, "ratio", "measured", labels, interval, len(speeds)))
    return found
