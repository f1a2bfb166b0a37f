"""What follows from the cells of the AdaAttention study: scores, differences, means over tasks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean

import torch
from torch import Tensor

from sparing.core.record import Label, Record
from sparing.measure.statistics import unseen
from sparing.studies._ada_arms import FULL, Work
from sparing.studies._ada_cells import INT8
from sparing.studies._ada_scores import kept_answers, printed_metric, score_of

RESAMPLES, SLOW = 2_000, 4
# Means: over the tasks that run every arm, over all tasks of an arm, and over GLUE's alone.
MEAN, EVERY, GLUE = "mean", "every", "glue"
GLUE_TASKS = ("mnli", "qqp", "qnli", "sst2", "cola", "stsb", "mrpc", "rte")
# Where a printed table names a task that another stands in for, and its metrics by our names.
IMAGES, TOP = "imagenet", {"Top-1": "accuracy", "Top-5": "top5"}
SPANS, MATCH = "squad", {"EM": "exact_match", "F1": "token_f1"}


def analyse(
    records: Sequence[Record],
    works: Sequence[Work],
    seeds: Sequence[int],
    ablated: Sequence[str] = (),
) -> list[Record]:
    """Scores over seeds and tasks, their differences to full, and mean speeds.

    ``ablated`` names the tasks that run every arm (all unless given): the mean is over these.
    """
    records = [record for record in records if record.obtained != "paper"]
    groups = _groups([work.name for work in works], ablated)
    arms = list(dict.fromkeys(str(r.labels["arm"]) for r in records if r.name == "seed_score"))
    found = []
    for arm in arms:
        found += _scores(records, works, arm, groups)
        if arm != FULL:
            found += _differences(works, seeds, arm, groups)
        for name in ("head_score", "cut_share", "width_share"):
            found += _mean_of(records, name, arm, groups[MEAN])
    return [*found, *_speeds(records, groups)]


def _groups(tasks: Sequence[str], ablated: Sequence[str]) -> dict[str, list[str]]:
    inside = [task for task in tasks if not ablated or task in ablated]
    glue = [task for task in tasks if task in GLUE_TASKS]
    return {MEAN: inside, EVERY: list(tasks), GLUE: glue}


def _scores(
    records: Sequence[Record], works: Sequence[Work], arm: str, groups: Mapping[str, list[str]]
) -> list[Record]:
    """The mean over seeds of each task by each metric, and the means over tasks."""
    found: list[Record] = []
    own: dict[str, float] = {}
    printed: dict[str, float] = {}
    for work in works:
        for name in work.task.metrics:
            value = _seed_mean(records, arm, work, name)
            if value is None:
                continue
            found += [value, *_standing_in(value, work)]
            if name == work.task.metric:
                own[work.name] = value.value or 0.0
            if name == printed_metric(work):
                printed[work.name] = value.value or 0.0
    for group, tasks in groups.items():
        kept = printed if group == GLUE else own
        values = [kept[task] for task in tasks if task in kept]
        if values:
            labels: dict[str, Label] = {"arm": arm, "task": group}
            mean = fmean(values)
            found.append(Record("score", mean, "score", "measured", labels, count=len(values)))
    return found


def _seed_mean(records: Sequence[Record], arm: str, work: Work, name: str) -> Record | None:
    values = [
        r.value
        for r in records
        if r.name == "seed_score"
        and (r.labels["arm"], r.labels["task"]) == (arm, work.name)
        and r.labels.get("metric") == name
        and r.value is not None
    ]
    if not values:
        return None
    labels: dict[str, Label] = {"arm": arm, "task": work.name, "metric": name}
    labels |= {"lowest": min(values), "highest": max(values), "main": name == work.task.metric}
    return Record("score", fmean(values), "score", "measured", labels, count=len(values))


def _standing_in(record: Record, work: Work) -> list[Record]:
    """The same score where a printed table asks for it by its own words."""
    names, task = {}, ""
    if work.task.kind == "image":
        names, task = TOP, IMAGES
    elif work.task.answer == "span":
        names, task = MATCH, SPANS
    found = []
    for printed, own in names.items():
        if record.labels["metric"] == own:
            labels = {"arm": record.labels["arm"], "task": task, "metric": printed}
            about = {**labels, "stand_in": work.name}
            found.append(Record("score", record.value, "score", "measured", about))
    return found


def _differences(
    works: Sequence[Work], seeds: Sequence[int], arm: str, groups: Mapping[str, list[str]]
) -> list[Record]:
    """To the full model trained on as long, example by example, for each task and their means.

    Intervals are bootstraps over test examples, both arms and all seeds on the same draws; 95 %.
    """
    found, values, spreads, sizes = [], {}, {}, {}
    for work in works:
        pairs = [(kept_answers(work, arm, seed), kept_answers(work, FULL, seed)) for seed in seeds]
        whole = [(ours, full) for ours, full in pairs if ours is not None and full is not None]
        if not whole:
            continue
        values[work.name], spreads[work.name] = _spread(work, whole)
        sizes[work.name] = len(whole[0][0])
        labels: dict[str, Label] = {"arm": arm, "task": work.name}
        gap, spread = values[work.name], spreads[work.name]
        found.append(_difference(labels, gap, spread, sizes[work.name], len(whole)))
    for group in (MEAN, EVERY):
        tasks = [task for task in groups[group] if task in values]
        if tasks:
            mean = torch.stack([spreads[task] for task in tasks]).mean(0)
            value = fmean(values[task] for task in tasks)
            least = min(sizes[task] for task in tasks)
            labels = {"arm": arm, "task": group}
            found.append(_difference(labels, value, mean, least, len(tasks)))
    return found


def _spread(work: Work, pairs: Sequence[tuple[Tensor, Tensor]]) -> tuple[float, Tensor]:
    """The difference and its resampled values, each a mean over seeds."""
    count = len(pairs[0][0])
    value = fmean(score_of(work, ours) - score_of(work, full) for ours, full in pairs)
    generator = torch.Generator().manual_seed(0)
    draws = torch.randint(count, (RESAMPLES, count), generator=generator)
    gaps = _gaps(work, pairs)
    if gaps is not None:
        return value, gaps.mean(0)[draws].mean(1)
    resampled = [
        fmean(score_of(work, ours, draw=d) - score_of(work, full, draw=d) for ours, full in pairs)
        for d in draws[::SLOW]
    ]
    return value, torch.tensor(resampled, dtype=torch.float64).repeat(SLOW)


def _gaps(work: Work, pairs: Sequence[tuple[Tensor, Tensor]]) -> Tensor | None:
    """Each example's own difference by seed, where the metric is a mean over examples."""
    if work.task.answer == "span":
        place = work.task.metrics.index(work.task.metric)
        return torch.stack([(ours - full)[:, place].double() for ours, full in pairs])
    if work.task.metric != "accuracy":
        return None
    labels = work.task.test.labels
    right = [[(each.argmax(-1) == labels).double() for each in pair] for pair in pairs]
    return torch.stack([ours - full for ours, full in right])


def _difference(
    labels: dict[str, Label], value: float, spread: Tensor, examples: int, count: int
) -> Record:
    ends = torch.tensor([0.025, 0.05, 0.975], dtype=torch.float64)
    low, one_sided, high = spread.double().quantile(ends).tolist()
    if low == high:  # no answer differs: so few examples cannot tell that none ever will
        low, one_sided, high = (
            value + side * unseen(examples, sure)
            for side, sure in ((-1, 0.95), (-1, 0.9), (1, 0.95))
        )
    about: dict[str, Label] = {**labels, "one_sided": one_sided}
    return Record("score_difference", value, "score", "measured", about, (low, high), count)


def _mean_of(records: Sequence[Record], name: str, arm: str, tasks: Sequence[str]) -> list[Record]:
    """The mean over tasks and seeds."""
    values = [
        r.value
        for r in records
        if r.name == name
        and r.labels.get("arm") == arm
        and r.labels.get("task") in tasks
        and r.value is not None
    ]
    if not values:
        return []
    labels: dict[str, Label] = {"arm": arm, "task": MEAN}
    return [Record(name, fmean(values), "share", "measured", labels, count=len(values))]


def _speeds(records: Sequence[Record], groups: Mapping[str, list[str]]) -> list[Record]:
    """The geometric means over tasks of the speeds of all inputs; of one task, with its interval.

    An arm that was timed with the INT8 forms too counts as it was timed with its own group.
    """
    own: dict[str, dict[str, Record]] = {}
    for r in sorted(records, key=lambda r: r.labels.get("group") == INT8):
        if r.name == "speed_up" and r.labels.get("inputs") == "all" and r.value:
            own.setdefault(str(r.labels["arm"]), {}).setdefault(str(r.labels["task"]), r)
    found = []
    for arm, by_task in own.items():
        for group in (MEAN, EVERY):
            wanted = [task for task in by_task if task in groups[group] or not groups[group]]
            speeds = [by_task[task] for task in wanted]
            if speeds:
                found.append(_mean_speed(arm, group, speeds))
    return found


def _mean_speed(arm: str, group: str, speeds: Sequence[Record]) -> Record:
    labels: dict[str, Label] = {"arm": arm, "task": group, "inputs": "all"}
    value = math.exp(fmean(math.log(r.value or 1.0) for r in speeds))
    interval = None
    if all(r.interval for r in speeds):
        sides = [[math.log(r.interval[side]) for r in speeds if r.interval] for side in (0, 1)]
        interval = (math.exp(fmean(sides[0])), math.exp(fmean(sides[1])))
    return Record("speed_up", value, "ratio", "measured", labels, interval, len(speeds))
