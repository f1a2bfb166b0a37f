"""What Kerformer's claims on neighbours rest on."""

from __future__ import annotations

from collections.abc import Mapping

from sparing.core.record import Label
from sparing.experiment.claims import Estimate
from sparing.experiment.records import RecordTable
from sparing_papers.kerformer.options import ARENA, NO_SE_K, PRETRAINED
from sparing_papers.kerformer.scores import PLAIN, deciding, gap_of
from sparing_papers.long_range.arms import KERFORMER

NEAR, FAR = 4, 8  # distances below the one are near, from the other on far
# What is trained on words: from nothing, and a pretrained encoder with its attention swapped.
LABELS_OF: Mapping[str, Mapping[str, Label]] = {ARENA: {}, PRETRAINED: PLAIN}
BySeed = dict[int, float]


def neighbours(records: RecordTable, confidence: float) -> Estimate | None:
    """Kerformer's mean weight at distances 1 to 3 less that from 8 on, on tasks that decide."""
    return gap_of(*_near_and_far(records, KERFORMER), confidence=confidence)


def neighbours_by_reweighting(records: RecordTable, confidence: float) -> Estimate | None:
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


def _near_and_far(records: RecordTable, arm: str) -> tuple[dict[str, BySeed], dict[str, BySeed]]:
    """A variant's mean weights at small and large distances, by task that decides and seed."""
    near: dict[str, BySeed] = {}
    far: dict[str, BySeed] = {}
    for question, labels in LABELS_OF.items():
        for task in deciding(records, question):
            at = {**labels, "question": question, "task": task, "arm": arm}
            key = f"{question}/{task}"
            near[key] = _weight(records, range(1, NEAR), at)
            far[key] = _weight(records, range(FAR, 1 << 30), at)
    return near, far


def _weight(records: RecordTable, distances: range, labels: Mapping[str, Label]) -> BySeed:
    """The mean weight at some distances, by seed.

    Every pair counts once: the farthest are few, and mostly of the first and the last token.
    """
    sums: dict[int, tuple[float, int]] = {}
    for record in records.all("weight_at_distance", **labels):
        if int(record.labels["distance"] or 0) in distances:
            seed = int(record.labels["seed"] or 0)
            total, pairs = sums.get(seed, (0.0, 0))
            weight = float(record.value or 0.0) * record.count
            sums[seed] = (total + weight, pairs + record.count)
    return {seed: total / pairs for seed, (total, pairs) in sums.items()}
