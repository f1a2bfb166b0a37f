"""What Kerformer's claims on noise and on neighbours rest on."""

from __future__ import annotations

from collections.abc import Mapping, Set

from sparing.core.record import Label
from sparing.studies._ker_costs import Found, Records
from sparing.studies._ker_options import ARENA, NO_SE_K, PRETRAINED
from sparing.studies._ker_scores import PLAIN, deciding, gap_of, scores_of, step_of
from sparing.studies._long_analysis import learned
from sparing.studies._long_arms import DENSE, KERFORMER

NEAR, FAR = 4, 8  # distances below the one are near, from the other on far
# What is trained on words: from nothing, and a pretrained encoder with its attention swapped.
ASKED: Mapping[str, Mapping[str, Label]] = {ARENA: {}, PRETRAINED: PLAIN}
BySeed = dict[int, float]


def noise(records: Records) -> Found:
    """What Kerformer keeps of what it is above chance, under the middle noise, less softmax's.

    A share, as who learned less has less to lose; on the tasks where both learned something.
    """
    shares = {float(r.labels["noise"] or 0.0) for r in records if r.name == "noisy_score"}
    if not shares:
        return None
    share = sorted(shares)[len(shares) // 2]

    def kept(arm: str) -> dict[str, BySeed]:
        return {
            f"{question}/{task}": found
            for question in ASKED
            for task, found in _kept(records, question, arm, share).items()
        }

    ours, theirs = kept(KERFORMER), kept(DENSE)
    return gap_of(ours, theirs, _step(records, ours.keys() & theirs.keys()))


def _step(records: Records, both: Set[str]) -> float:
    """What one answer more or less changes of what is kept, on the tasks that both learned."""
    found = [0.0]
    for question, labels in ASKED.items():
        step, chances = step_of(records, question), deciding(records, question)
        for arm in (KERFORMER, DENSE):
            for task, scores in scores_of(records, question, arm, labels=labels).items():
                if f"{question}/{task}" in both:
                    above = (value - chances[task] for value in scores.values())
                    found += [step / each for each in above if each > 0]
    return max(found)


def _kept(records: Records, question: str, arm: str, share: float) -> dict[str, BySeed]:
    """By task and seed: the share of what an arm is above chance that noise leaves."""
    labels, chances = ASKED[question], deciding(records, question)
    clean = scores_of(records, question, arm, labels=labels)
    noisy = scores_of(records, question, arm, "noisy_score", {**labels, "noise": share})
    step = step_of(records, question)
    return {
        task: {
            n: (noisy[task][n] - chances[task]) / (found[n] - chances[task])
            for n in found
            if n in noisy[task] and found[n] > chances[task]
        }
        for task, found in clean.items()
        if learned(found, chances[task], step)
    }


def neighbours(records: Records) -> Found:
    """Kerformer's mean weight at distances 1 to 3 less that from 8 on, on tasks that decide."""
    return gap_of(*_near_and_far(records, KERFORMER))


def neighbours_by_reweighting(records: Records) -> Found:
    """That difference less what the same form without SE-K has.

    SE-K weighs a key alike for all queries and knows no distance: what it does to neighbours comes
    by way of what the rest of the model learns beside it.
    """
    ours, theirs = (
        {
            task: {n: near[task][n] - far[task][n] for n in near[task].keys() & far[task].keys()}
            for task in near
        }
        for near, far in (_near_and_far(records, arm) for arm in (KERFORMER, NO_SE_K))
    )
    return gap_of(ours, theirs)


def _near_and_far(records: Records, arm: str) -> tuple[dict[str, BySeed], dict[str, BySeed]]:
    """An arm's mean weights at small and large distances, by task that decides and seed."""
    near: dict[str, BySeed] = {}
    far: dict[str, BySeed] = {}
    for question, labels in ASKED.items():
        for task in deciding(records, question):
            key = f"{question}/{task}"
            told = {**labels, "question": question, "task": task, "arm": arm}
            near[key], far[key] = _of_task(records, told)
    return near, far


def _of_task(records: Records, labels: Mapping[str, Label]) -> tuple[BySeed, BySeed]:
    """Mean weights at small and large distances of one task, by seed.

    Every pair counts once: the farthest are few, and mostly of the first and the last token.
    """
    found: tuple[dict[int, list[tuple[float, int]]], ...] = ({}, {})
    for each in records:
        if each.name != "weight_at_distance" or not labels.items() <= each.labels.items():
            continue
        distance, seed = int(each.labels["distance"] or 0), int(each.labels["seed"] or 0)
        side = 0 if 0 < distance < NEAR else 1 if distance >= FAR else None
        if side is not None:
            found[side].setdefault(seed, []).append((float(each.value or 0.0), each.count))
    near, far = (
        {n: sum(v * w for v, w in f) / sum(w for _, w in f) for n, f in side.items()}
        for side in found
    )
    return near, far
