"""What Kerformer's claims on scores rest on: two variants on the tasks and seeds that both have."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from statistics import fmean
from types import MappingProxyType

import numpy as np
from scipy.stats import t as student

from sparing.core.record import Label, Record
from sparing.experiment.claims import (
    FEWEST_SEEDS,
    Estimate,
    Measure,
    at_once,
    least,
    of_record,
)
from sparing.experiment.forecasts.needs import SEEDS, Forecast
from sparing.experiment.records import RecordTable
from sparing.measure.forecast import reach_with
from sparing.measure.pooling import Part, parts_of, reach_of
from sparing.measure.statistics import Difference, mean_difference
from sparing_papers.kerformer.costs import is_linear
from sparing_papers.kerformer.options import PRETRAINED, VISION
from sparing_papers.long_range.analysis import by_seed, decides, resolution
from sparing_papers.long_range.answers import ANSWERS, right_by_seed
from sparing_papers.long_range.arms import DENSE, KERFORMER, UNIFORM

PLAIN: Mapping[str, Label] = {"stage": "plain"}  # encoders trained with labels alone
IMDB: Mapping[str, Label] = {"question": PRETRAINED, "task": "imdb"}
Scores = Mapping[str, Mapping[int, float]]  # by task and seed
# The efficient mechanisms of Tables 5 and 4 beside Kerformer.
ARENA_BASELINES = ("local", "reformer", "performer", "longformer", "bigbird", "dct")
VISION_BASELINES = (DENSE, "efficient", "linear", "cosformer")
CIFAR = "cifar10"
IMAGES = ("mnist", CIFAR, "flowers")
DOWNSTREAM_BASELINES = ("performer", "reformer", "linear", "longformer", "rfa", "dct")


def deciding(records: RecordTable, question: str) -> dict[str, float]:
    """The tasks of a question that pass the sensitivity check, with the scores of guessing.

    Of swapped encoders those where the ones trained with labels alone do.
    """
    if question == PRETRAINED:
        return {
            str(chance.labels["task"]): float(chance.value or 0.0)
            for chance in records.all("chance", question=PRETRAINED)
            if _swapped_decide(records, chance, "plain")
        }
    return {
        str(check.labels["task"]): float(check.labels.get("chance") or 0.0)
        for check in records.all("decides", question=question)
        if check.value
    }


def _swapped_decide(records: RecordTable, chance: Record, stage: str, fewest: int = 2) -> bool:
    """Whether swapped encoders with dense attention are above guessing and ``uniform``."""
    labels: dict[str, Label] = {"question": PRETRAINED, "task": chance.labels["task"]}
    labels |= {"stage": stage}
    dense, uniform = (by_seed(records, "score", arm=arm, **labels) for arm in (DENSE, UNIFORM))
    step, guess = resolution(records.all("score", **labels)), float(chance.value or 0.0)
    known = len(dense.keys() & uniform.keys()) >= fewest
    return known and decides(dense, uniform, guess, step)[0]


def scores_of(
    records: RecordTable,
    question: str,
    arm: str,
    name: str = "score",
    labels: Mapping[str, Label] = MappingProxyType({}),
    only: Collection[str] | None = None,
) -> dict[str, dict[int, float]]:
    """A quantity of a variant by task and seed, on the tasks that decide or ``only`` some."""
    return {
        task: by_seed(records, name, question=question, arm=arm, task=task, **labels)
        for task in deciding(records, question)
        if only is None or task in only
    }


def gap_of(
    ours: Scores,
    theirs: Scores,
    step: float = 0.0,
    confidence: float = 0.95,
    parts: Mapping[str, Part] | None = None,
) -> Estimate | None:
    """The mean over tasks that both have of the difference paired by seed.

    Seeds of different tasks are different trainings on different data, and as many as each task
    has: variances of tasks' means add up, with Satterthwaite's degrees of freedom. ``parts`` is by
    task what test examples add. Without an interval where a task has too few seeds to decide. A
    task that one of the two lacks says nothing of them, whatever the other came to on it.
    """
    tasks = [task for task, scores in ours.items() if scores and theirs.get(task)]
    seeds = {task: sorted({*ours[task]} & {*theirs[task]}) for task in tasks}
    if not tasks or not all(seeds.values()):
        return None
    gaps = {
        task: mean_difference(
            *([scores[task][n] for n in seeds[task]] for scores in (ours, theirs)),
            resolution=step,
            confidence=confidence,
        )
        for task in tasks
    }
    value = fmean(gap.value for gap in gaps.values())
    if any(gap.count < FEWEST_SEEDS for gap in gaps.values()):
        return Estimate(value, None, lacks=f"at least {FEWEST_SEEDS} seeds")
    share = 1 / len(tasks)
    of_seeds = [_of_seeds(gap, confidence).times(share) for gap in gaps.values()]
    of_examples = [parts[task].times(share) for task in tasks if parts and task in parts]
    reach = reach_of([*of_seeds, *of_examples], confidence)

    def at(count: int) -> tuple[float, float]:
        other = reach_with(of_seeds, of_examples, count, confidence)
        return value - other, value + other

    more = Forecast(SEEDS, min(gap.count for gap in gaps.values()), at)
    return Estimate(value, (value - reach, value + reach), forecast=more)


def _of_seeds(gap: Difference, confidence: float) -> Part:
    """The variance of a mean over seeds, from its interval."""
    assert gap.interval is not None
    error = (gap.interval[1] - gap.value) / float(student.ppf((1 + confidence) / 2, gap.count - 1))
    return Part(error**2, gap.count - 1)


def _example_parts(
    records: RecordTable, question: str, ours: str, theirs: str, **labels: Label
) -> dict[str, Part]:
    """By task: the effect of other test examples on the difference of two variants.

    Of tasks with records of which examples were right; seeds share the test examples of a task.
    """
    parts = {}
    for task in records.values_of(ANSWERS, "task", question=question, arm=ours, **labels):
        one, other = (
            right_by_seed(records, ANSWERS, question=question, task=task, arm=arm, **labels)
            for arm in (ours, theirs)
        )
        seeds = sorted(one.keys() & other.keys())
        if len(seeds) > 1:
            gaps = np.stack([one[n].astype(float) - other[n] for n in seeds])
            parts[str(task)] = parts_of(gaps)[1]
    return parts


def step_of(records: RecordTable, question: str, name: str = "score") -> float:
    """One answer of the smallest sensitive test split: the resolution of a mean over tasks."""
    tasks, scores = deciding(records, question), records.all(name, question=question)
    counts = [r.count for r in scores if r.labels.get("task") in tasks and r.count > 1]
    return 1 / min(counts) if counts else 0.0


def above(
    question: str,
    ours: str,
    theirs: str,
    *,
    least_tokens: int = 0,
    only: Collection[str] | None = None,
) -> Measure:
    """How much better one variant is than another, for other trainings and other test examples.

    On the tasks with inputs of at least so many tokens, or ``only`` on some.
    """

    def measure(records: RecordTable, confidence: float) -> Estimate | None:
        tasks = only
        if least_tokens:
            sizes = records.all("task_tokens", question=question)
            tasks = {str(r.labels["task"]) for r in sizes if (r.value or 0) >= least_tokens}
        one, other = (scores_of(records, question, arm, only=tasks) for arm in (ours, theirs))
        parts = _example_parts(records, question, ours, theirs)
        return gap_of(one, other, step_of(records, question), confidence, parts)

    return measure


def above_the_best(
    question: str,
    baselines: Collection[str],
    only: Collection[str] | None = None,
    labels: Mapping[str, Label] = MappingProxyType({}),
) -> Measure:
    """What Kerformer is above the baseline that it is least above; on ``only`` some tasks.

    The mean is over those of them that decide.
    """

    def measure(records: RecordTable, confidence: float) -> Estimate | None:
        ours, *theirs = (
            scores_of(records, question, arm, labels=labels, only=only)
            for arm in (KERFORMER, *baselines)
        )
        parts = {
            arm: _example_parts(records, question, KERFORMER, arm, **labels) for arm in baselines
        }
        arms = dict(zip(baselines, theirs, strict=True))
        return over_all(ours, arms, step_of(records, question), parts, confidence)

    return measure


def over_all(
    ours: Scores,
    baselines: Mapping[str, Scores],
    step: float = 0.0,
    parts: Mapping[str, Mapping[str, Part]] | None = None,
    confidence: float = 0.95,
) -> Estimate | None:
    """What a variant is above the one that it is least above: falls only if it does beside all.

    The claim is about the mean over tasks. Where one of them was not measured on all of its tasks,
    the others can refute the claim but not support it. ``parts`` are those of ``gap_of`` by
    baseline.
    """
    tasks = [task for task, scores in ours.items() if scores]
    whole = {
        arm: theirs if all(theirs.get(task) for task in tasks) else {}
        for arm, theirs in baselines.items()
    }

    def beside(level: float) -> list[Estimate | None]:
        of_baseline = parts or {}
        return [gap_of(ours, whole[arm], step, level, of_baseline.get(arm)) for arm in whole]

    gaps = beside(confidence)
    worst = least(gaps, beside(at_once(confidence, len(gaps) - gaps.count(None))))
    if worst is None or worst.interval is None or None not in gaps or worst.interval[1] < 0:
        return worst
    return replace(worst, interval=None, lacks="runs of the other variants")


def paired_share(*names: str) -> Measure:
    """On IMDB, distilled first: a quantity of the linear variant that did best on validation rows.

    Of several quantities the smallest, its interval's ends the lowest of all: it holds where all
    do. None where one of them was not measured, without an interval where seeds are too few and
    where the task fails the sensitivity check.
    """

    def measure(records: RecordTable, confidence: float) -> Estimate | None:
        validated = _best_validation(records)
        by_arm = {
            arm: [records.find(name, arm=arm, stage="warm", **IMDB) for name in names]
            for arm in sorted(validated, key=lambda arm: -validated[arm])
        }
        best = next((of_arm for of_arm in by_arm.values() if None not in of_arm), None)
        if best is None:
            return None
        chance = records.find("chance", **IMDB)
        sure = chance is not None and _swapped_decide(records, chance, "warm", FEWEST_SEEDS)
        estimates = [_share_kept(record, confidence, sure) for record in best if record is not None]
        return least(estimates, estimates)

    return measure


def _share_kept(record: Record, confidence: float, sure: bool) -> Estimate:
    """A share of the accuracy kept; its count is that of examples, not of seeds."""
    seeds = int(record.labels.get("seeds") or 1)
    ends = record.interval if sure and seeds >= FEWEST_SEEDS else None
    estimate = of_record(replace(record, interval=ends, count=seeds), confidence)
    lacks = "" if sure else f"{FEWEST_SEEDS} seeds of a task that passes the sensitivity check"
    # examples and seeds share its interval: which of them would lessen it is not recorded
    return replace(estimate, count=None, forecast=None, lacks=lacks or "more seeds or examples")


def _best_validation(records: RecordTable) -> dict[str, float]:
    """By linear variant: the best validation score end to end, of the weights used; seeds' mean.

    The curve begins layer by layer, in the steps of that stage, which are not of that choice.
    """
    best: dict[str, dict[int, float]] = {}
    for point in records.all("validation_score", stage="warm", **IMDB):
        arm, seed = str(point.labels["arm"]), int(point.labels["seed"] or 0)
        layers = records.value("steps", stage="layers", arm=arm, seed=seed, **IMDB) or 0.0
        if float(point.labels["step"] or 0) > layers and is_linear(point):
            of_arm = best.setdefault(arm, {})
            of_arm[seed] = max(of_arm.get(seed, 0.0), float(point.value or 0.0))
    return {arm: fmean(scores.values()) for arm, scores in best.items()}


def first_quarter(records: RecordTable, confidence: float) -> Estimate | None:
    """On CIFAR-10, Kerformer's validation score after a quarter of the epochs less a baseline's.

    The least over the four that are published beside it.
    """

    def early(arm: str) -> Scores:
        labels: dict[str, Label] = {"question": VISION, "task": CIFAR, "arm": arm}
        epochs = [float(n or 0) for n in records.values_of("validation_score", "epoch", **labels)]
        quarter = max(1.0, max(epochs, default=0.0) // 4)
        scores = by_seed(records, "validation_score", epoch=quarter, **labels)
        return {CIFAR: scores} if CIFAR in deciding(records, VISION) else {}

    step = step_of(records, VISION, "validation_score")
    baselines = {arm: early(arm) for arm in VISION_BASELINES}
    return over_all(early(KERFORMER), baselines, step, confidence=confidence)
