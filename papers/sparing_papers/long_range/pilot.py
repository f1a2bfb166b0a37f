"""Two trainings try a task first; the others are left out where it fails the sensitivity check."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sparing.core.record import Record
from sparing.experiment.cells.rates import FIRST_SEED
from sparing_papers.long_range.answers import ANSWERS, Bits, right_of
from sparing_papers.long_range.arms import DENSE, UNIFORM
from sparing_papers.long_range.work import ABOVE_CHANCE, LongWork

PAIR = (DENSE, UNIFORM)
MANY_SEEDS = 5
OWN = {"question", "task", "arm", "seed", "right"}  # other labels: other inputs


def idle_after_pilot(work: LongWork) -> Callable[[Sequence[Record]], str] | None:
    """For the other cells of a task: why the first two trainings make them useless.

    None where no task is tried first: without ``pilot``, for scores other than accuracy, and with
    so many seeds that one failed training says little about them.
    """
    options = work.options
    if not options.pilot or options.seeds >= MANY_SEEDS or work.task.metric != "accuracy":
        return None

    def idle(records: Sequence[Record]) -> str:
        return unpromising(records, work.question, work.name, work.task.chance, options.margin)

    return idle


def unpromising(
    records: Sequence[Record], question: str, task: str, chance: float, margin: float
) -> str:
    """Why a task fails the sensitivity check; empty where it passes or is not tried yet.

    Dense attention must be 5 points above chance, and better than the mean of all values by more
    than the ``margin`` of a score that counts as no worse. Otherwise that mean would itself count
    as no worse than dense attention.
    """
    dense, uniform = (_right(records, question, task, arm) for arm in PAIR)
    if dense is None or uniform is None:
        return ""
    score_text = f"of {len(dense):,} inputs softmax is right on {dense.mean():.1%}"
    if dense.mean() < chance + ABOVE_CHANCE:
        return f"{score_text}, guessing on {chance:.1%}"
    if dense.mean() - uniform.mean() < margin:
        return f"{score_text}, the mean of all values on {uniform.mean():.1%}"
    return ""


def _right(records: Sequence[Record], question: str, task: str, arm: str) -> Bits | None:
    required = {"question": question, "task": task, "arm": arm, "seed": FIRST_SEED}.items()
    for record in records:
        if record.name == ANSWERS and required <= record.labels.items() and {*record.labels} <= OWN:
            return right_of(record)
    return None
