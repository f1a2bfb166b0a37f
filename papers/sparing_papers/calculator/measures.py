"""How the study's claims measure: differences by seed, single quantities, the least of several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sparing.core.record import Label
from sparing.experiment.claims import (
    Claim,
    Condition,
    Estimate,
    GoalResult,
    Measure,
    at_once,
    least,
    of_pairs,
)
from sparing.experiment.records import RecordTable
from sparing_papers.calculator.analysis import Seeds, by_seed
from sparing_papers.calculator.names import NETWORKS

CLAIM = "claim"  # others are what the text proposes, and claims made of another network


def claim(
    text: str,
    quantity: str,
    measure: Measure,
    bound: float = 0.0,
    kind: str = CLAIM,
    *,
    family: str = "claims",
    question: str = NETWORKS,
) -> Claim:
    """``text`` as published; it holds where the whole interval of ``measure`` is above ``bound``.

    ``quantity`` says what is measured, ``kind`` whether it is a claim, what the text proposes
    without having tried it, or a claim made of another network. Claims of one ``family`` are
    decided together, in runs that have its ``question``.
    """

    def varies(records: RecordTable, result: GoalResult) -> bool:
        return result.interval != (bound, bound)

    name = f"{text}: {quantity}"
    return Claim(
        name,
        measure,
        bound,
        guards=(Condition(varies, "a quantity that varies"),),
        kind=kind,
        family=family,
        questions=(question,),
    )


def difference(name: str, ours: str, theirs: str, **labels: Label) -> Measure:
    """How much larger a quantity is of one variant than of another, seed by seed."""
    return lambda table, confidence: of_pairs(
        by_seed(table, name, ours, **labels), by_seed(table, name, theirs, **labels), confidence
    )


def alone(name: str, arm: str, **labels: Label) -> Measure:
    """A quantity of one variant."""

    def measure(table: RecordTable, confidence: float) -> Estimate | None:
        values = by_seed(table, name, arm, **labels)
        return of_pairs(values, dict.fromkeys(values, 0.0), confidence)

    return measure


def beside_all(pairs: Sequence[tuple[Seeds, Seeds]], confidence: float) -> Estimate | None:
    """The least of several differences: above a bound only where all are, below it where one is.

    Where one of them was not measured, the others can refute a claim but not support it.
    """
    measured = [pair for pair in pairs if all(pair)]
    together = at_once(confidence, len(measured))
    smallest = least(
        [of_pairs(*pair, confidence) for pair in measured],
        [of_pairs(*pair, together) for pair in measured],
    )
    if smallest is None or smallest.interval is None:
        return smallest
    refuted = smallest.interval[1] < 0
    if len(measured) == len(pairs) or refuted:
        return smallest
    return replace(smallest, interval=None, lacks="runs of the other networks")
