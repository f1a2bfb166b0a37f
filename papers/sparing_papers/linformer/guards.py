"""What must be known before a claim of the Linformer study is decided: guards over its records."""

from __future__ import annotations

from sparing.core.record import Labels
from sparing.experiment.claims import FEWEST_SEEDS, Condition, GoalResult, Guard
from sparing.experiment.records import RecordTable
from sparing_papers.long_range.arms import DENSE, UNIFORM
from sparing_papers.long_range.work import ABOVE_CHANCE

ANOTHER_TASK = "another task: on this one softmax is not clearly better than uniform"


def sensitive(question: str, task: str) -> Guard:
    """The task passes the sensitivity check, by enough seeds."""
    return Condition(lambda records, result: passes(records, question, task), ANOTHER_TASK)


def passes(records: RecordTable, question: str, task: str) -> bool:
    """Whether dense attention beats chance and the mean-of-values control on the task."""
    check = records.find("decides", question=question, task=task)
    return check is not None and bool(check.value) and check.count >= FEWEST_SEEDS


def ahead(records: RecordTable, name: str, labels: Labels, sign: int = 1) -> bool:
    """Whether dense attention has surely more than ``uniform``, or less with ``sign`` -1."""
    gap = records.find(f"{name}_difference", **{**labels, "arm": DENSE, "less": UNIFORM})
    if gap is None or gap.interval is None or gap.count < FEWEST_SEEDS:
        return False
    return gap.interval[0] > 0 if sign > 0 else gap.interval[1] < 0


def above_chance(records: RecordTable, name: str, chance: float | None, labels: Labels) -> bool:
    """Whether the whole interval of a mean score is 5 points above chance."""
    score = records.find(f"mean_{name}", **labels)
    if score is None or score.interval is None or chance is None:
        return False
    return score.interval[0] - chance >= ABOVE_CHANCE


def dense_learned(kind: str, labels: Labels) -> Guard:
    """Dense attention is above chance there, and clearly better than ``uniform``."""
    dense = {**labels, "arm": DENSE}
    name = f"{kind}_score"

    def guard(records: RecordTable, result: GoalResult) -> bool:
        chance = records.value(f"mean_{kind}_chance", **dense)
        return ahead(records, name, dense) and above_chance(records, name, chance, dense)

    return Condition(guard, "another task or more seeds: there softmax is not clearly better")


def had_it(name: str, chance: str, labels: Labels) -> Guard:
    """The variant had what it may have lost: a score above chance and near dense attention's.

    A variant at chance cannot lose accuracy, and one that learned less has less to lose. One that
    loses more than dense attention fails all the same.
    """

    def guard(records: RecordTable, result: GoalResult) -> bool:
        near = result.met is False or _near(records, name, labels)
        guess = records.value(f"mean_{chance}", **labels)
        return near and above_chance(records, name, guess, labels)

    return Condition(guard, "a variant that learned as much as softmax at the trained length")


def _near(records: RecordTable, name: str, labels: Labels) -> bool:
    """Whether a score is less than 5 points below dense attention's by its whole interval."""
    gap = records.find(f"{name}_difference", less=DENSE, **labels)
    return gap is not None and gap.interval is not None and gap.interval[0] > -ABOVE_CHANCE
