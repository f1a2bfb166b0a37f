"""A task is asked of two trainings first; where those cannot tell, the others are left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from sparing.core.record import Record
from sparing.measure.pooling import parts_of, reach_of
from sparing.studies._ker_answers import ANSWERS, Bits, right_of
from sparing.studies._long_arms import DENSE, UNIFORM
from sparing.studies._long_work import ABOVE_CHANCE

FIRST = 0  # the seed that is tried first
PAIR = (DENSE, UNIFORM)
OWN = {"question", "task", "arm", "seed", "right"}  # other labels: asked of other inputs


def idle_after_pilot(question: str, task: str, chance: float) -> Callable[[Sequence[Record]], str]:
    """For cells of a task that does not decide where dense attention is no better than guessing.

    Or no better than the mean of all values: see ``Decides``.
    """

    def idle(records: Sequence[Record]) -> str:
        return why_undecided(records, question, task, chance)

    return idle


def why_undecided(records: Sequence[Record], question: str, task: str, chance: float) -> str:
    """Why a task cannot decide, by its first seed; empty where it may, or is not tried yet."""
    dense, uniform = (_right(records, question, task, arm) for arm in PAIR)
    if dense is None or uniform is None or len(dense) != len(uniform) or len(dense) < 2:
        return ""
    told = f"of {len(dense):,} inputs softmax is right on {dense.mean():.1%}"
    if dense.mean() < chance + ABOVE_CHANCE:
        return f"{told}, guessing on {chance:.1%}"
    gaps = dense.astype(float) - uniform
    if gaps.mean() <= reach_of(parts_of(gaps[np.newaxis]), 0.95):
        return f"{told}, the mean of all values on {uniform.mean():.1%}"
    return ""


def _right(records: Sequence[Record], question: str, task: str, arm: str) -> Bits | None:
    wanted = {"question": question, "task": task, "arm": arm, "seed": FIRST}.items()
    for record in records:
        if record.name == ANSWERS and wanted <= record.labels.items() and {*record.labels} <= OWN:
            return right_of(record)
    return None
