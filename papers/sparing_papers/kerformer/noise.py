"""What Kerformer's claim to be robust to noise rests on."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from sparing.core.record import Label
from sparing.experiment.claims import Estimate
from sparing.experiment.records import RecordTable
from sparing.measure.pooling import Part, parts_of
from sparing_papers.kerformer.behaviour import LABELS_OF, BySeed
from sparing_papers.kerformer.scores import deciding, gap_of, scores_of, step_of
from sparing_papers.long_range.analysis import by_seed, learned
from sparing_papers.long_range.answers import ANSWERS, NOISY_ANSWERS, right_by_seed
from sparing_papers.long_range.arms import DENSE, KERFORMER

Errors = npt.NDArray[np.float64]
ARMS = (KERFORMER, DENSE)


def noise(records: RecordTable, confidence: float) -> Estimate | None:
    """The share of its score above chance that Kerformer keeps under noise, less softmax's.

    A share, as a model that learned less has less to lose; at the middle noise, on tasks that both
    learned. Noise and test examples are the same for all seeds. The interval needs records of which
    examples were right under noise; without them there is none.
    """
    shares = sorted(float(share or 0.0) for share in records.values_of("noisy_score", "noise"))
    if not shares:
        return None
    share = shares[len(shares) // 2]

    def by_task(arm: str) -> dict[str, BySeed]:
        return {
            f"{question}/{task}": shares_kept
            for question in LABELS_OF
            for task, shares_kept in _shares_kept(records, question, arm, share).items()
        }

    ours, theirs = by_task(KERFORMER), by_task(DENSE)
    both = {task for task in ours if ours[task] and theirs.get(task)}
    parts = {task: part for task in both if (part := _of_examples(records, task, share))}
    gap = gap_of(ours, theirs, _step(records, both), confidence, parts)
    if gap is None or both == parts.keys():
        return gap
    return replace(gap, interval=None, lacks="records of which noisy examples were right")


def _shares_kept(records: RecordTable, question: str, arm: str, share: float) -> dict[str, BySeed]:
    """By task and seed: the share of what a variant is above chance that noise leaves."""
    labels, chances = LABELS_OF[question], deciding(records, question)
    clean = scores_of(records, question, arm, labels=labels)
    noisy = scores_of(records, question, arm, "noisy_score", {**labels, "noise": share})
    step = step_of(records, question)
    return {
        task: {
            n: (noisy[task][n] - chances[task]) / (score - chances[task])
            for n, score in scores.items()
            if n in noisy[task] and score > chances[task]
        }
        for task, scores in clean.items()
        if learned(scores, chances[task], step)
    }


def _step(records: RecordTable, both: Set[str]) -> float:
    """What one answer more or less changes of what is kept, on the tasks that both learned."""
    steps = [0.0]
    for question, labels in LABELS_OF.items():
        step, chances = step_of(records, question), deciding(records, question)
        for arm in ARMS:
            for task, scores in scores_of(records, question, arm, labels=labels).items():
                if f"{question}/{task}" in both:
                    above = (value - chances[task] for value in scores.values())
                    steps += [step / score for score in above if score > 0]
    return max(steps)


def _of_examples(records: RecordTable, key: str, share: float) -> Part | None:
    """The effect of other test examples and other noise on the difference on one task.

    None where no record holds which examples were right, or the score is not their mean.
    """
    question, _, task = key.partition("/")
    chance = deciding(records, question)[task]
    labels: dict[str, Label] = {**LABELS_OF[question], "question": question, "task": task}
    ours, theirs = (_errors(records, {**labels, "arm": arm}, share, chance) for arm in ARMS)
    gaps = [ours[n] - theirs[n] for n in ours if n in theirs and len(ours[n]) == len(theirs[n])]
    return parts_of(np.stack(gaps))[1] if len(gaps) > 1 else None


def _errors(
    records: RecordTable, labels: Mapping[str, Label], share: float, chance: float
) -> dict[int, Errors]:
    """By seed: how much each example moves what is kept, to first order; 0 in the mean."""
    clean = _right(records, ANSWERS, "score", labels)
    noisy = _right(records, NOISY_ANSWERS, "noisy_score", {**labels, "noise": share})
    errors = {}
    for seed in clean.keys() & noisy.keys():
        above = clean[seed].mean() - chance
        if above > 0 and len(clean[seed]) == len(noisy[seed]):
            left = (noisy[seed].mean() - chance) / above
            errors[seed] = (noisy[seed] - chance - left * (clean[seed] - chance)) / above
    return errors


def _right(
    records: RecordTable, name: str, score: str, labels: Mapping[str, Label]
) -> dict[int, Errors]:
    """Which examples were right, by seed, where the score is their mean."""
    means = by_seed(records, score, **labels)
    right = right_by_seed(records, name, **labels)
    return {
        seed: bits.astype(float)
        for seed, bits in right.items()
        if abs(means.get(seed, 0.0) - bits.mean()) < 1e-9
    }
