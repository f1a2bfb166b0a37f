"""The analysis of the AdaAttention study: scores, differences, speeds and means over tasks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean, variance

from sparing.core.record import Label, Record, least_sure
from sparing.experiment.records import RecordTable
from sparing.measure.pooling import Part, reach_of
from sparing_papers.adaattention.arms import TABLE_ONE, Work
from sparing_papers.adaattention.cells.answers import printed_metric
from sparing_papers.adaattention.findings import own_group_first
from sparing_papers.adaattention.gaps import gap_of, mean_gap
from sparing_papers.adaattention.names import (
    ADAPTIVE,
    CONTROLS,
    DENSE,
    EVERY,
    FULL,
    GLUE,
    GLUE_TASKS,
    MEAN,
    ONE,
    OWN,
    SEEDS,
    SHARED,
    TAUGHT,
)

NORMAL = 1.96
Groups = Mapping[str, list[str]]
# The task of a printed table that another task replaces here, and its metrics by their names here.
IMAGES, TOP = "imagenet", {"Top-1": "accuracy", "Top-5": "top5"}
SPANS, MATCH = "squad", {"EM": "exact_match", "F1": "token_f1"}


def analyse(
    records: Sequence[Record],
    works: Sequence[Work],
    seeds: Sequence[int],
    ablated: Sequence[str] = (),
) -> list[Record]:
    """Scores over seeds and tasks, their differences to full, and mean speeds.

    ``ablated`` names the tasks that run every variant (all unless given): the mean is over these.
    """
    table, groups = RecordTable(records), _groups(works, ablated)
    derived: list[Record] = []
    for arm in map(str, table.values_of("seed_score", "arm")):
        derived += _scores(table, works, arm, groups)
        if arm != FULL:
            derived += _differences(works, seeds, arm, groups)
        derived += _means(table, arm, groups[MEAN])
    derived += _controls(works, seeds, groups[MEAN])
    derived += _between(table, works, seeds)
    return [*derived, *_speeds(table, groups), *_training_times(table)]


def _groups(works: Sequence[Work], ablated: Sequence[str]) -> Groups:
    tasks = [work.name for work in works]
    glue = [
        work.name
        for work in works
        if work.name in GLUE_TASKS and all(arm.fits(work.task.answer) for arm in TABLE_ONE)
    ]
    inside = [task for task in tasks if not ablated or task in ablated]
    return {MEAN: inside, EVERY: of_claims(works), GLUE: glue}


def of_claims(works: Sequence[Work]) -> list[str]:
    """The tasks that claims on inputs are evaluated on: texts, or all tasks if none has texts.

    A small ViT from random weights would count as much as a task with a pretrained encoder.
    """
    texts = [work.name for work in works if work.task.kind == "tokens"]
    return texts or [work.name for work in works]


def _scores(
    table: RecordTable, works: Sequence[Work], arm: str, groups: Groups
) -> Iterator[Record]:
    """The mean over seeds of each task by each metric, and the means over tasks."""
    main_scores: dict[str, float] = {}
    printed: dict[str, float] = {}
    for work in works:
        for name in work.task.metrics:
            scores = table.all("seed_score", arm=arm, task=work.name, metric=name)
            if not scores:
                continue
            values = [float(record.value or 0.0) for record in scores]
            mean = fmean(values)
            labels: dict[str, Label] = {"arm": arm, "task": work.name, "metric": name}
            about = {"lowest": min(values), "highest": max(values)}
            main = name == work.task.metric
            yield _score(mean, {**labels, **about, "main": main}, len(values))
            yield from _standing_in(mean, arm, work, name)
            if main:
                main_scores[work.name] = mean
            if name == printed_metric(work):
                printed[work.name] = mean
    for group, tasks in groups.items():
        by_task = printed if group == GLUE else main_scores
        inside = [task for task in tasks if task in by_task]
        if inside:
            labels = {"arm": arm, "task": group, "tasks": ", ".join(inside)}
            yield _score(fmean(by_task[task] for task in inside), labels, len(inside))


def _score(value: float, labels: dict[str, Label], count: int = 1) -> Record:
    return Record("score", value, "score", "measured", labels, count=count)


def _standing_in(value: float, arm: str, work: Work, metric: str) -> Iterator[Record]:
    """The same score under the name that a printed table gives it."""
    names, task = (MATCH, SPANS) if work.task.answer == "span" else ({}, "")
    if work.task.kind == "image":
        names, task = TOP, IMAGES
    for printed, name in names.items():
        if metric == name:
            labels: dict[str, Label] = {"arm": arm, "task": task, "metric": printed}
            yield _score(value, {**labels, "stand_in": work.name})


def _differences(
    works: Sequence[Work], seeds: Sequence[int], arm: str, groups: Groups
) -> Iterator[Record]:
    """Differences to the full model trained on as long, for each task and their means."""
    gaps = {work.name: gap for work in works if (gap := gap_of(work, arm, FULL, seeds))}
    for task, gap in gaps.items():
        yield gap.record("score_difference", {"arm": arm, "task": task}, gap.seeds)
    for group in (MEAN, EVERY):
        inside = [gaps[task] for task in groups[group] if task in gaps]
        if inside:
            mean = mean_gap(inside)
            yield mean.record("score_difference", {"arm": arm, "task": group}, len(inside))


def _controls(works: Sequence[Work], seeds: Sequence[int], inside: list[str]) -> Iterator[Record]:
    """Differences between the adaptive variant and the controls that ignore the input."""
    ablated = [work for work in works if work.name in inside]
    for control in CONTROLS:
        gaps = [gap for work in ablated if (gap := gap_of(work, ADAPTIVE, control, seeds))]
        if gaps:
            mean = mean_gap(gaps)
            labels: dict[str, Label] = {"arm": ADAPTIVE, "to": control, "task": MEAN}
            yield mean.record("control_difference", labels, mean.seeds)


def _between(table: RecordTable, works: Sequence[Work], seeds: Sequence[int]) -> Iterator[Record]:
    """Differences between two forms of one variant, for each task and on average.

    Those with taught layers are compared with their plain forms, one scorer with one each.
    """
    texts = of_claims(works)
    arms = list(map(str, table.values_of("seed_score", "arm")))
    pairs = [(arm, arm.removesuffix(TAUGHT), EVERY) for arm in arms if arm.endswith(TAUGHT)]
    pairs += [(ONE, OWN, SHARED)] if ONE in arms else []
    for arm, to, mean in pairs:
        gaps = {work.name: gap for work in works if (gap := gap_of(work, arm, to, seeds))}
        for task, gap in gaps.items():
            labels: dict[str, Label] = {"arm": arm, "to": to, "task": task}
            yield gap.record("arm_difference", labels, gap.seeds)
        inside = [gap for task, gap in gaps.items() if mean == SHARED or task in texts]
        if inside:
            labels = {"arm": arm, "to": to, "task": mean}
            yield mean_gap(inside).record("arm_difference", labels, len(inside))


def _means(table: RecordTable, arm: str, tasks: Sequence[str]) -> Iterator[Record]:
    """The means over tasks and seeds of head scores and of the shares that they cut."""
    labels: dict[str, Label] = {"arm": arm, "task": MEAN}
    for name in ("head_score", "cut_share", "width_share"):
        records = [record for task in tasks for record in table.all(name, arm=arm, task=task)]
        if records:
            mean = fmean(float(record.value or 0.0) for record in records)
            obtained = least_sure(records)
            yield Record(name, mean, "share", obtained, labels, count=len(records))


def _speeds(table: RecordTable, groups: Groups) -> Iterator[Record]:
    """Geometric means of speeds: over a task's seeds for each class of inputs, then over tasks.

    Where a variant was also timed with the INT8 forms, the speed from its group counts.
    """
    timed: dict[tuple[Label, Label, Label], dict[Label, Record]] = {}
    for r in own_group_first(table.all("speed_up")):
        if r.value and "inputs" in r.labels:
            key = r.labels["arm"], r.labels["task"], r.labels["inputs"]
            timed.setdefault(key, {}).setdefault(r.labels.get("seed"), r)
    for (arm, task, inputs), seeds in timed.items():
        if len(seeds) > 1:
            labels = {"arm": arm, "task": task, "inputs": inputs, "group": SEEDS}
            yield _mean_speed(labels, [[*seeds.values()]], len(seeds))
    for arm in dict.fromkeys(arm for arm, _, inputs in timed if inputs == "all"):
        of_arm = {
            str(task): seeds
            for (name, task, inputs), seeds in timed.items()
            if (name, inputs) == (arm, "all")
        }
        for group, tasks in groups.items():
            inside = [task for task in of_arm if task in tasks]
            if inside:
                labels = {"arm": arm, "task": group, "inputs": "all", "tasks": ", ".join(inside)}
                speeds = [[*of_arm[task].values()] for task in inside]
                yield _mean_speed(labels, speeds, len(inside))


def _mean_speed(labels: dict[str, Label], speeds: Sequence[Sequence[Record]], count: int) -> Record:
    """The mean over tasks of equal weight, each the mean of its seeds; interval over both."""
    logs = [[math.log(r.value or 1.0) for r in of_task] for of_task in speeds]
    value, parts = fmean(map(fmean, logs)), None
    if all(r.interval for of_task in speeds for r in of_task):
        parts = [
            part.times(1 / len(speeds))
            for of_task, values in zip(speeds, logs, strict=True)
            for part in _speed_parts(of_task, values)
        ]
    interval = speeds[0][0].interval
    if len(speeds) > 1 or len(speeds[0]) > 1:
        interval = _around(value, parts)
    obtained = least_sure(r for of_task in speeds for r in of_task)
    return Record("speed_up", math.exp(value), "ratio", obtained, labels, interval, count)


def _around(log: float, parts: Sequence[Part] | None) -> tuple[float, float] | None:
    """The 95 % interval of a ratio by the variance of its logarithm; None without parts."""
    if not parts:
        return None
    reach = reach_of(parts, 0.95)
    return math.exp(log - reach), math.exp(log + reach)


def _speed_parts(records: Sequence[Record], logs: Sequence[float]) -> Iterator[Part]:
    """The variance parts of a task's log speed: inputs and, if there are several, trainings.

    Models of two seeds differ in their plans or in what is cut; the inputs are the same.
    """
    yield part_of_inputs(records)
    yield from _training_part(logs)


def part_of_inputs(records: Sequence[Record]) -> Part:
    """The variance part of a task's log speed that its inputs add; they are those of all seeds."""
    widths = [math.log(r.interval[1] / r.interval[0]) for r in records if r.interval]
    return Part((fmean(widths) / (2 * NORMAL)) ** 2, max(1, records[0].count - 1))


def _training_part(logs: Sequence[float]) -> Iterator[Part]:
    """The variance part of a mean over trainings; empty for a single training."""
    if len(logs) > 1:
        yield Part(variance(logs) / len(logs), len(logs) - 1)


def _training_times(table: RecordTable) -> Iterator[Record]:
    """Each variant's training time over full's, paired by seed, on each task."""
    took = {
        (r.labels["task"], r.labels["arm"], r.labels["seed"]): r.value
        for r in table.all("train_time_s")
        if r.value
    }
    ratios: dict[tuple[Label, Label], list[float]] = {}
    for (task, arm, seed), value in took.items():
        full = took.get((task, FULL, seed))
        if full and arm not in (FULL, DENSE):
            ratios.setdefault((task, arm), []).append(math.log(value / full))
    for (task, arm), logs in ratios.items():
        labels: dict[str, Label] = {"task": task, "arm": arm}
        value, interval = fmean(logs), _around(fmean(logs), [*_training_part(logs)])
        times = table.all("train_time_s", task=task)
        obtained = least_sure(r for r in times if r.labels["arm"] in (arm, FULL))
        yield Record(
            "train_time_ratio", math.exp(value), "ratio", obtained, labels, interval, len(logs)
        )
