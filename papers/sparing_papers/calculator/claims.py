"""The published claims, each as a number with a side on which it stands and one on which it falls.

Source: Mukin, A Predictive Calculator (2025), sections 1.2, 5 and 6.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sparing.core.record import Record
from sparing.experiment.claims import Claim, Estimate, GoalResult, at_once, decide
from sparing.experiment.records import RecordTable
from sparing_papers.calculator.analysis import Values, paired
from sparing_papers.calculator.arms import (
    BASELINE,
    BOTH_WAYS,
    DROPOUT,
    FNN2,
    FNN3,
    LARGE,
    LSTM,
    NO_PLACES,
    PROPOSED,
    PUBLISHED,
    RNN2,
    SMALL,
)

CLAIM = "claim"  # others are what the text proposes, and claims made of another network
OF_ANOTHER_KIND = ("NAU", "NAC", BASELINE)
Found = Callable[[Values, float], Record | None]


def _claim(
    text: str, quantity: str, measure: Found, bound: float = 0.0, kind: str = CLAIM
) -> Claim:
    """``text`` as published; it holds where the whole interval of ``measure`` is above ``bound``.

    ``quantity`` says what is measured, ``kind`` whether it is a claim, what the text proposes
    without having tried it, or a claim made of another network.
    """

    def estimate(records: RecordTable, confidence: float) -> Estimate | None:
        found = measure(Values(records.records), confidence)
        if found is None or found.value is None:
            return None
        return Estimate(float(found.value), found.interval, found.count)

    def varies(records: RecordTable, result: GoalResult) -> bool:
        return result.interval != (bound, bound)

    name = f"{text}: {quantity}"
    return Claim(name, estimate, bound, guards=(varies,), kind=kind, family="claims")


def _compared(
    ours: Mapping[Any, float], theirs: Mapping[Any, float], confidence: float
) -> Record | None:
    """A difference, seed by seed."""
    if not (ours and theirs):
        return None
    return paired(ours, theirs, confidence=confidence)


def _difference(name: str, ours: str, theirs: str, **labels: str) -> Found:
    """How much larger a quantity is of one arm than of another, seed by seed."""

    def measure(values: Values, confidence: float) -> Record | None:
        one, other = (values.by_seed(name, arm, **labels) for arm in (ours, theirs))
        return _compared(one, other, confidence)

    return measure


def _alone(name: str, arm: str, **labels: str) -> Found:
    def measure(values: Values, confidence: float) -> Record | None:
        found = values.by_seed(name, arm, **labels)
        return _compared(found, dict.fromkeys(found, 0.0), confidence)

    return measure


def _leaning(values: Values, confidence: float) -> Record | None:
    """What the last of three operands moves the answer by, less what the first does."""
    last, first = (values.by_seed("sensitivity", RNN2, operands=3, place=n) for n in (3, 1))
    return _compared(last, first, confidence)


def _beside_all(
    pairs: Sequence[tuple[Mapping[Any, float], Mapping[Any, float]]], confidence: float
) -> Record | None:
    """The least of several differences: above a bound only where all are, below it where one is.

    One of many is easily below by chance: the upper ends are of intervals that hold at once. Where
    one of them was not measured, the others can refute a claim but not support it.
    """
    asked = len(pairs)
    pairs = [pair for pair in pairs if all(pair)]
    together = at_once(confidence, len(pairs))
    found = [record for pair in pairs if (record := paired(*pair, confidence=confidence))]
    wide = [record for pair in pairs if (record := paired(*pair, confidence=together))]
    lows = [record.interval[0] for record in found if record.interval]
    highs = [record.interval[1] for record in wide if record.interval]
    if not found or not lows or not highs:
        return found[0] if found else None
    least = min(found, key=lambda record: float(record.value or 0.0))
    told = len(pairs) == asked or min(highs) < 0
    interval = (min(lows), min(highs)) if told else None
    return replace(least, interval=interval, count=min(r.count for r in found))


def _over_the_best(values: Values, confidence: float) -> Record | None:
    """The published winner's bounded score less that of each network that is no FNN.

    Accumulators do not count: the sum is built into them.
    """
    ours = values.by_seed("bounded_score", FNN2)
    arms = dict.fromkeys([*PUBLISHED, *values.arms])
    others = {arm: values.by_seed("bounded_score", arm) for arm in arms if _is_rival(arm)}
    return _beside_all(
        [(ours, found) for found in others.values() if None not in found], confidence
    )


def _is_rival(arm: str) -> bool:
    return not arm.startswith("FNN") and arm not in OF_ANOTHER_KIND


def _best_of_all(ours: str, name: str, group: str) -> Found:
    """The error of each other published arm less ours."""

    def measure(values: Values, confidence: float) -> Record | None:
        own = values.by_seed(name, ours, set=group)
        rest = [values.by_seed(name, arm, set=group) for arm in PUBLISHED if arm != ours]
        return _beside_all([(found, own) for found in rest], confidence)

    return measure


def _transformers_worst(name: str, group: str) -> Found:
    """The error of each published transformer less that of each other published arm."""

    def measure(values: Values, confidence: float) -> Record | None:
        found = {arm: values.by_seed(name, arm, set=group) for arm in PUBLISHED}
        ours = {arm: found.pop(arm) for arm in (SMALL, LARGE) if arm in found}
        return _beside_all(
            [(own, other) for own in ours.values() for other in found.values()], confidence
        )

    return measure


CLAIMS: tuple[Claim, ...] = (
    _claim(
        "FNNs are, overall, the best at generalizing",
        f"bounded score of {FNN2} less that of each that is no FNN and no accumulator, the least",
        _over_the_best,
    ),
    _claim(
        "tokens that appear later have a more significant impact on an RNN's prediction",
        f"{RNN2}, three operands in range: sensitivity to the last less that to the first",
        _leaning,
    ),
    _claim(
        "an RNN's output is almost always closer to the last number than to the first",
        f"{RNN2}: share of answers in range that are nearer to the last, 0.9 asked for",
        _alone("closer_to_last", RNN2),
        0.9,
    ),
    _claim(
        "attention emphasizes outstandingly large numbers",
        f"{LSTM}: rank correlation of the weight on a number with its size, 0.3 asked for",
        _alone("attention_size", LSTM),
        0.3,
    ),
    _claim(
        "the same, of the network that the text describes",
        f"{BOTH_WAYS}: rank correlation of the weight on a number with its size, 0.3 asked for",
        _alone("attention_size", BOTH_WAYS),
        0.3,
        "variant",
    ),
    _claim(
        "positions improve an FNN, minimally",
        f"published score: {FNN3} less {NO_PLACES}",
        _difference("legacy_score", FNN3, NO_PLACES),
    ),
    _claim(
        "with dropout models generalize worse beyond the training range",
        f"error out of range: {DROPOUT} less {FNN2}",
        _difference("mean_error", DROPOUT, FNN2, set="out"),
    ),
    _claim(
        "LSTMs with attention predict longer expressions best of all models studied",
        f"error on long sums: each other published network's less that of {LSTM}, the least",
        _best_of_all(LSTM, "mean_error", group="long"),
    ),
    _claim(
        "thanks to positions transformers handle longer inputs better than FNNs",
        f"error on long sums: {FNN2} less {SMALL}",
        _difference("mean_error", FNN2, SMALL, set="long"),
    ),
    _claim(
        "transformers struggle with generalization more than other models",
        f"error out of range: {SMALL} and {LARGE} less each other published network, the least",
        _transformers_worst("mean_error", group="out"),
    ),
    _claim(
        "attention should strengthen an FNN on longer expressions",
        f"error on long sums: {FNN2} less {PROPOSED}",
        _difference("mean_error", FNN2, PROPOSED, set="long"),
        kind="proposal",
    ),
)


def judge(records: Sequence[Record]) -> list[GoalResult]:
    """Each claim: it holds, fails, or is undecided."""
    return decide(CLAIMS, RecordTable(records))
