"""What follows from the cells of the AdaAttention study: scores, differences, means over tasks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean, variance

from sparing.core.record import Label, Record
from sparing.measure.pooling import Part, reach_of
from sparing_papers.adaattention.arms import ADAPTIVE, CONTROLS, DENSE, FULL, TABLE_ONE, Work
from sparing_papers.adaattention.cells.scores import printed_metric
from sparing_papers.adaattention.cells.training import INT8
from sparing_papers.adaattention.gaps import gap_of, mean_gap

NORMAL = 1.96
# Means: over the tasks that run every arm, over all tasks of an arm, and over those of GLUE that
# have every row of Table I.
MEAN, EVERY, GLUE = "mean", "every", "glue"
SEEDS = "seeds"
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
    groups = _groups(works, ablated)
    arms = list(dict.fromkeys(str(r.labels["arm"]) for r in records if r.name == "seed_score"))
    found = []
    for arm in arms:
        found += _scores(records, works, arm, groups)
        if arm != FULL:
            found += _differences(works, seeds, arm, groups)
        for name in ("head_score", "cut_share", "width_share"):
            found += _mean_of(records, name, arm, groups[MEAN])
    found += _controls(works, seeds, groups[MEAN])
    speeds = [*_speeds_of_tasks(records), *_speeds(records, groups)]
    return [*found, *speeds, *_training_times(records)]


def _groups(works: Sequence[Work], ablated: Sequence[str]) -> dict[str, list[str]]:
    tasks = [work.name for work in works]
    inside = [task for task in tasks if not ablated or task in ablated]
    glue = [
        work.name
        for work in works
        if work.name in GLUE_TASKS and all(arm.fits(work.task.answer) for arm in TABLE_ONE)
    ]
    return {MEAN: inside, EVERY: of_claims(works), GLUE: glue}


def of_claims(works: Sequence[Work]) -> list[str]:
    """The tasks that claims on inputs speak of: texts, as printed, or all where there are none.

    A small ViT from nothing would weigh as much as a task on which a pretrained encoder is cut.
    """
    texts = [work.name for work in works if work.task.kind == "tokens"]
    return texts or [work.name for work in works]


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
            labels["tasks"] = ", ".join(task for task in tasks if task in kept)
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
    """To the full model trained on as long, for each task and their means."""
    found, gaps = [], {}
    for work in works:
        gap = gap_of(work, arm, FULL, seeds)
        if gap is not None:
            gaps[work.name] = gap
            labels: dict[str, Label] = {"arm": arm, "task": work.name}
            found.append(gap.record("score_difference", labels, gap.seeds))
    for group in (MEAN, EVERY):
        inside = [gaps[task] for task in groups[group] if task in gaps]
        if inside:
            labels = {"arm": arm, "task": group}
            found.append(mean_gap(inside).record("score_difference", labels, len(inside)))
    return found


def _controls(works: Sequence[Work], seeds: Sequence[int], inside: Sequence[str]) -> list[Record]:
    """What scores that follow inputs are worth beside scores that do not, arm against arm."""
    found = []
    for control in CONTROLS:
        gaps = [
            gap
            for work in works
            if work.name in inside and (gap := gap_of(work, ADAPTIVE, control, seeds)) is not None
        ]
        if gaps:
            mean = mean_gap(gaps)
            labels: dict[str, Label] = {"arm": ADAPTIVE, "to": control, "task": MEAN}
            found.append(mean.record("control_difference", labels, mean.seeds))
    return found


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


def _speeds_of_tasks(records: Sequence[Record]) -> list[Record]:
    """The mean over seeds of an arm's speed on a task, of all inputs and of those of a length."""
    own: dict[tuple[Label, ...], dict[Label, Record]] = {}
    names = ("arm", "task", "inputs")
    for r in sorted(records, key=lambda r: r.labels.get("group") == INT8):
        if r.name == "speed_up" and r.value and "inputs" in r.labels:
            key = tuple(r.labels[name] for name in names)
            own.setdefault(key, {}).setdefault(r.labels.get("seed"), r)
    return [
        replace(
            _mean_speed(
                {**dict(zip(names, key, strict=True)), "group": SEEDS}, [[*seeds.values()]]
            ),
            count=len(seeds),
        )
        for key, seeds in own.items()
        if len(seeds) > 1
    ]


def _speeds(records: Sequence[Record], groups: Mapping[str, list[str]]) -> list[Record]:
    """The geometric means over seeds and tasks of the speeds of all inputs.

    An arm that was timed with the INT8 forms too counts as it was timed with its own group.
    """
    own: dict[str, dict[str, dict[Label, Record]]] = {}
    for r in sorted(records, key=lambda r: r.labels.get("group") == INT8):
        if r.name == "speed_up" and r.labels.get("inputs") == "all" and r.value:
            tasks = own.setdefault(str(r.labels["arm"]), {})
            tasks.setdefault(str(r.labels["task"]), {}).setdefault(r.labels.get("seed"), r)
    found = []
    for arm, by_task in own.items():
        for group in (MEAN, EVERY, GLUE):
            wanted = [task for task in by_task if task in groups[group]]
            speeds = [list(by_task[task].values()) for task in wanted]
            if speeds:
                labels: dict[str, Label] = {"arm": arm, "task": group, "inputs": "all"}
                found.append(_mean_speed(labels | {"tasks": ", ".join(wanted)}, speeds))
    return found


def _mean_speed(labels: dict[str, Label], speeds: Sequence[Sequence[Record]]) -> Record:
    """Of tasks that count alike, each the mean of its seeds; for other inputs and trainings."""
    logs = [[math.log(r.value or 1.0) for r in of_task] for of_task in speeds]
    value, interval = fmean(map(fmean, logs)), None
    if [len(of_task) for of_task in speeds] == [1]:
        interval = speeds[0][0].interval
    elif all(r.interval for of_task in speeds for r in of_task):
        share = 1 / len(speeds)
        parts = [
            part.times(share)
            for of_task, values in zip(speeds, logs, strict=True)
            for part in _speed_parts(of_task, values)
        ]
        reach = reach_of(parts, 0.95)
        interval = (math.exp(value - reach), math.exp(value + reach))
    return Record("speed_up", math.exp(value), "ratio", "measured", labels, interval, len(speeds))


def _speed_parts(records: Sequence[Record], logs: Sequence[float]) -> Iterator[Part]:
    """What inputs and, where there are several, trainings make of a task's speed, in logarithms.

    Models of two seeds differ where plans or what is cut do; the inputs are the same.
    """
    widths = [math.log(r.interval[1] / r.interval[0]) for r in records if r.interval]
    yield Part((fmean(widths) / (2 * NORMAL)) ** 2, max(1, records[0].count - 1))
    if len(logs) > 1:
        yield Part(variance(logs) / len(logs), len(logs) - 1)


def _training_times(records: Sequence[Record]) -> list[Record]:
    """How long each arm's training took beside full's, seed by seed, on each task."""
    took = {
        (r.labels["task"], r.labels["arm"], r.labels["seed"]): r.value
        for r in records
        if r.name == "train_time_s" and r.value
    }
    ratios: dict[tuple[Label, Label], list[float]] = {}
    for (task, arm, seed), value in took.items():
        full = took.get((task, FULL, seed))
        if full and arm not in (FULL, DENSE):
            ratios.setdefault((task, arm), []).append(math.log(value / full))
    found = []
    for (task, arm), logs in ratios.items():
        value, interval = fmean(logs), None
        if len(logs) > 1:
            reach = reach_of([Part(variance(logs) / len(logs), len(logs) - 1)], 0.95)
            interval = (math.exp(value - reach), math.exp(value + reach))
        labels: dict[str, Label] = {"task": task, "arm": arm}
        found.append(
            Record(
                "train_time_ratio",
                math.exp(value),
                "ratio",
                "measured",
                labels,
                interval,
                len(logs),
            )
        )
    return found
