"""What Kerformer's claims on scores rest on: two arms on the tasks and seeds that both have."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from types import MappingProxyType

import numpy as np
from scipy.stats import t as student

from sparing.core.record import Label
from sparing.experiment.arms import family_of
from sparing.experiment.claims import FEWEST_SEEDS, at_once, widened
from sparing.measure.pooling import Part, parts_of, reach_of
from sparing.measure.statistics import Difference, mean_difference
from sparing_papers.kerformer.costs import LINEAR, Found, Measure, Records, least
from sparing_papers.kerformer.options import ARENA, PRETRAINED, VISION
from sparing_papers.long_range.analysis import by_seed, decides, resolution
from sparing_papers.long_range.answers import ANSWERS, right_of
from sparing_papers.long_range.arms import DENSE, KERFORMER, UNIFORM, arm_of

PLAIN: Mapping[str, Label] = {"stage": "plain"}  # copies trained with labels alone
_WARM: Mapping[str, Label] = {"task": "imdb", "stage": "warm"}
_LAYERS: Mapping[str, Label] = {"task": "imdb", "stage": "layers"}
Scores = Mapping[str, Mapping[int, float]]  # by task and seed
# The efficient mechanisms of Tables 5 and 4 beside Kerformer.
ARENA_RIVALS = ("local", "reformer", "performer", "longformer", "bigbird", "dct")
VISION_RIVALS = (DENSE, "efficient", "linear", "cosformer")
CIFAR = "cifar10"
IMAGES = ("mnist", CIFAR, "flowers")
DOWNSTREAM_RIVALS = ("performer", "reformer", "linear", "longformer", "rfa", "dct")


def deciding(records: Records, question: str) -> dict[str, float]:
    """The tasks of a question that tell mechanisms apart, with the scores of guessing."""
    if question == PRETRAINED:
        return _deciding_copies(records)
    return {
        str(r.labels["task"]): float(r.labels.get("chance") or 0.0)
        for r in records
        if r.name == "decides" and r.value and r.labels.get("question") == question
    }


def _deciding_copies(records: Records) -> dict[str, float]:
    """Those where copies trained with labels alone tell mechanisms apart."""
    found = {}
    for each in records:
        if each.name != "chance" or each.labels.get("question") != PRETRAINED:
            continue
        task, chance = str(each.labels["task"]), float(each.value or 0.0)
        own: dict[str, Label] = {"question": PRETRAINED, "task": task, **PLAIN}
        dense, uniform = (by_seed(records, "score", arm=arm, **own) for arm in (DENSE, UNIFORM))
        scores = [r for r in records if r.name == "score" and own.items() <= r.labels.items()]
        if decides(task, dense, uniform, chance, resolution(scores)).decided:
            found[task] = chance
    return found


def scores_of(
    records: Records,
    question: str,
    arm: str,
    name: str = "score",
    labels: Mapping[str, Label] = MappingProxyType({}),
) -> dict[str, dict[int, float]]:
    """A quantity of an arm by task and seed, on the tasks that decide."""
    own: dict[str, Label] = {**labels, "question": question, "arm": arm}
    tasks = deciding(records, question)
    return {task: by_seed(records, name, **{**own, "task": task}) for task in tasks}


def gap_of(
    ours: Scores,
    theirs: Scores,
    step: float = 0.0,
    confidence: float = 0.95,
    parts: Mapping[str, Part] | None = None,
) -> Found:
    """The mean over tasks that both have of the difference paired by seed.

    Seeds of different tasks are different trainings on different data, and as many as each task
    has: variances of tasks' means add up, with Satterthwaite's degrees of freedom. ``parts`` is by
    task what test examples add. Without an interval where a task has too few seeds to decide. A
    task that one of the two lacks says nothing of them, whatever the other came to on it.
    """
    tasks = [task for task, found in ours.items() if found and theirs.get(task)]
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
        return value, None
    of_seeds = [_of_seeds(gap, confidence) for gap in gaps.values()]
    of_examples = [parts[task] for task in tasks if parts and task in parts]
    share = 1 / len(tasks)
    reach = reach_of([part.times(share) for part in (*of_seeds, *of_examples)], confidence)
    return value, (value - reach, value + reach)


def _of_seeds(gap: Difference, confidence: float) -> Part:
    """The variance of a mean over seeds, from its interval."""
    assert gap.interval is not None
    error = (gap.interval[1] - gap.value) / float(student.ppf((1 + confidence) / 2, gap.count - 1))
    return Part(error**2, gap.count - 1)


def _example_parts(
    records: Records, question: str, ours: str, theirs: str, **labels: Label
) -> dict[str, Part]:
    """By task: what other test examples would change of the difference of two arms.

    Of tasks whose right answers are kept; seeds share the test examples of their task.
    """
    right: dict[str, dict[str, dict[int, np.ndarray]]] = {}
    wanted = {"question": question, **labels}.items()
    for each in records:
        if each.name == ANSWERS and wanted <= each.labels.items():
            arm, task = str(each.labels["arm"]), str(each.labels["task"])
            if arm in (ours, theirs):
                own = right.setdefault(task, {}).setdefault(arm, {})
                own[int(each.labels["seed"] or 0)] = right_of(each).astype(float)
    found = {}
    for task, arms in right.items():
        seeds = sorted({*arms.get(ours, ())} & {*arms.get(theirs, ())})
        if len(seeds) > 1:
            gaps = np.stack([arms[ours][n] - arms[theirs][n] for n in seeds])
            found[task] = parts_of(gaps)[1]
    return found


def step_of(records: Records, question: str, name: str = "score") -> float:
    """One answer of the smallest test split that decides: no mean over tasks is told finer."""
    tasks = deciding(records, question)
    own = [r for r in records if r.name == name and r.labels.get("question") == question]
    counts = [r.count for r in own if r.labels.get("task") in tasks and r.count > 1]
    return 1 / min(counts) if counts else 0.0


def above(
    question: str,
    ours: str,
    theirs: str,
    *,
    least_tokens: int = 0,
    only: str = "",
) -> Measure:
    """How much better one arm is than another, for other trainings and other test examples.

    On the tasks whose longest input has at least so many tokens, or on one of them.
    """

    def measure(records: Records, confidence: float = 0.95) -> Found:
        one, other = (scores_of(records, question, arm) for arm in (ours, theirs))
        if least_tokens:
            long = _long_tasks(records, question, least_tokens)
            one = {task: found for task, found in one.items() if task in long}
        if only:
            one = {task: found for task, found in one.items() if task == only}
        parts = _example_parts(records, question, ours, theirs)
        return gap_of(one, other, step_of(records, question), confidence, parts)

    return measure


def _long_tasks(records: Records, question: str, least_tokens: int) -> set[str]:
    return {
        str(r.labels["task"])
        for r in records
        if r.name == "task_tokens"
        and r.labels.get("question") == question
        and (r.value or 0) >= least_tokens
    }


def above_the_best(only: str = "") -> Measure:
    """What Kerformer is above the rival of Table 5 that it is least above, or on one task alone."""

    def own(records: Records, arm: str) -> Scores:
        found = scores_of(records, ARENA, arm)
        return {task: scores for task, scores in found.items() if only in ("", task)}

    def measure(records: Records, confidence: float = 0.95) -> Found:
        arms = {arm: own(records, arm) for arm in ARENA_RIVALS}
        parts = {arm: _example_parts(records, ARENA, KERFORMER, arm) for arm in arms}
        step = step_of(records, ARENA)
        return _over_all(own(records, KERFORMER), arms, step, parts, confidence)

    return measure


def _over_all(
    ours: Scores,
    arms: Mapping[str, Scores],
    step: float = 0.0,
    parts: Mapping[str, Mapping[str, Part]] | None = None,
    confidence: float = 0.95,
) -> Found:
    """What an arm is above the one that it is least above: falls only if it does beside all.

    Where one of them was not measured on all of its tasks, whose mean the claim is about, the
    others can refute the claim but not support it. ``parts`` are those of ``gap_of`` by rival.
    """
    tasks = [task for task, found in ours.items() if found]
    whole = {
        arm: theirs if all(theirs.get(task) for task in tasks) else {}
        for arm, theirs in arms.items()
    }

    def beside(level: float) -> list[Found]:
        own = parts or {}
        return [gap_of(ours, whole[arm], step, level, own.get(arm)) for arm in whole]

    gaps = beside(confidence)
    found = least(gaps, beside(at_once(confidence, len(gaps) - gaps.count(None))))
    if found is None or found[1] is None or None not in gaps or found[1][1] < 0:
        return found
    return found[0], None


def _smallest(values: list[tuple[float, tuple[float, float] | None]]) -> Found:
    """The smallest of several quantities, which may not be the one that is known least well."""
    intervals = [interval for _, interval in values if interval is not None]
    value = min(value for value, _ in values)
    if len(intervals) < len(values):
        return value, None
    return value, (min(low for low, _ in intervals), min(high for _, high in intervals))


def kept(*names: str) -> Measure:
    """On IMDB, distilled first: a quantity of the linear arm that did best on validation rows.

    Of several quantities the smallest, its interval's ends the lowest of all: it holds where all
    do. None where one of them was not measured, without an interval where seeds are too few and
    where the task does not tell mechanisms apart.
    """

    def measure(records: Records, confidence: float = 0.95) -> Found:
        own = [r for r in records if _WARM.items() <= r.labels.items()]
        told = _distilled_decide(records)
        found: dict[str, dict[str, tuple[float, tuple[float, float] | None]]] = {}
        for each in own:
            if each.name in names:
                sure = told and int(each.labels.get("seeds") or 1) >= FEWEST_SEEDS
                value, ends = float(each.value or 0.0), each.interval
                seeds = int(each.labels.get("seeds") or 1)
                one = (value, widened(value, ends, confidence, seeds) if sure and ends else None)
                found.setdefault(str(each.labels["arm"]), {})[each.name] = one
        seen = _best_validation(records)
        known = [arm for arm in seen if len(found.get(arm, {})) == len(names)]
        if not known:
            return None
        best = max(known, key=seen.__getitem__)
        return _smallest(list(found[best].values()))

    return measure


def _distilled_decide(records: Records) -> bool:
    """Whether distilled copies with dense attention are above guessing and ``uniform``."""
    dense, uniform = (by_seed(records, "score", arm=arm, **_WARM) for arm in (DENSE, UNIFORM))
    task = str(_WARM["task"])
    asked: dict[str, Label] = {"question": PRETRAINED, "task": task}
    chances = [
        float(r.value or 0.0)
        for r in records
        if r.name == "chance" and asked.items() <= r.labels.items()
    ]
    scores = [r for r in records if r.name == "score" and _WARM.items() <= r.labels.items()]
    few = len(dense.keys() & uniform.keys()) < FEWEST_SEEDS
    if few or not chances:
        return False
    return decides(task, dense, uniform, chances[-1], resolution(scores)).decided


def _best_validation(records: Records) -> dict[str, float]:
    """By linear arm: the best validation score end to end, whose weights are judged; seeds' mean.

    The curve begins layer by layer, in the steps of that stage, which are not of that choice.
    """
    layers = {
        (str(r.labels["arm"]), int(r.labels["seed"] or 0)): float(r.value or 0.0)
        for r in records
        if r.name == "steps" and _LAYERS.items() <= r.labels.items()
    }
    best: dict[tuple[str, int], float] = {}
    for each in records:
        if each.name != "validation_score" or not _WARM.items() <= each.labels.items():
            continue
        arm, seed = str(each.labels["arm"]), int(each.labels["seed"] or 0)
        later = float(each.labels["step"] or 0) > layers.get((arm, seed), 0.0)
        if later and family_of(arm_of(arm).mechanism) in LINEAR:
            best[arm, seed] = max(best.get((arm, seed), 0.0), float(each.value or 0.0))
    arms = {arm for arm, _ in best}
    return {arm: fmean(v for (own, _), v in best.items() if own == arm) for arm in arms}


def first_quarter(records: Records, confidence: float = 0.95) -> Found:
    """On CIFAR-10, Kerformer's validation score after a quarter of the epochs less a rival's.

    The least over the four that are published beside it.
    """

    def early(arm: str) -> dict[str, dict[int, float]]:
        found = {}
        for task in {CIFAR} & deciding(records, VISION).keys():
            labels: dict[str, Label] = {"question": VISION, "task": task, "arm": arm}
            points = [
                r
                for r in records
                if r.name == "validation_score" and labels.items() <= r.labels.items()
            ]
            last = max((float(r.labels["epoch"] or 0) for r in points), default=0.0)
            quarter = [r for r in points if float(r.labels["epoch"] or 0) == max(1.0, last // 4)]
            found[task] = by_seed(quarter, "validation_score")
        return found

    step = step_of(records, VISION, "validation_score")
    rivals = {arm: early(arm) for arm in VISION_RIVALS}
    return _over_all(early(KERFORMER), rivals, step, confidence=confidence)


def best_on_images(records: Records, confidence: float = 0.95) -> Found:
    """What Kerformer is above the rival of Figure 6 that it is least above.

    The mean over those of the three sets of images it is said to be best on that decide.
    """

    def own(arm: str) -> Scores:
        found = scores_of(records, VISION, arm)
        return {task: scores for task, scores in found.items() if task in IMAGES}

    parts = {arm: _example_parts(records, VISION, KERFORMER, arm) for arm in VISION_RIVALS}
    rivals = {arm: own(arm) for arm in VISION_RIVALS}
    return _over_all(own(KERFORMER), rivals, step_of(records, VISION), parts, confidence)


def best_transfer(records: Records, confidence: float = 0.95) -> Found:
    """After plain fine-tuning, what Kerformer is above the rival that it is least above."""

    ours, *theirs = (
        scores_of(records, PRETRAINED, arm, labels=PLAIN) for arm in (KERFORMER, *DOWNSTREAM_RIVALS)
    )
    rivals = dict(zip(DOWNSTREAM_RIVALS, theirs, strict=True))
    parts = {arm: _example_parts(records, PRETRAINED, KERFORMER, arm, **PLAIN) for arm in rivals}
    return _over_all(ours, rivals, step_of(records, PRETRAINED), parts, confidence)
