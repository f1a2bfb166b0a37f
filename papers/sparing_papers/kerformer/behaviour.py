"""What Kerformer's claims on neighbours rest on."""

from __future__ import annotations

from collections.abc import Mapping

from sparing.core.record import Label
from sparing_papers.kerformer.costs import Found, Records
from sparing_papers.kerformer.options import ARENA, NO_SE_K, PRETRAINED
from sparing_papers.kerformer.scores import PLAIN, deciding, gap_of
from sparing_papers.long_range.arms import KERFORMER

NEAR, FAR = 4, 8  # distances below the one are near, from the other on far
# What is trained on words: from nothing, and a pretrained encoder with its attention swapped.
ASKED: Mapping[str, Mapping[str, Label]] = {ARENA: {}, PRETRAINED: PLAIN}
BySeed = dict[int, float]


def neighbours(records: Records, confidence: float = 0.95) -> Found:
    """Kerformer's mean weight at distances 1 to 3 less that from 8 on, on tasks that decide."""
    return gap_of(*_near_and_far(records, KERFORMER), confidence=confidence)


def neighbours_by_reweighting(records: Records, confidence: float = 0.95) -> Found:
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
    return gap_of(ours, theirs, confidence=confidence)


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
