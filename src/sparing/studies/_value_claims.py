"""The published claims, each as a number with a side on which it stands and one on which it falls.

Source: Mukin, A Predictive Calculator (2025), sections 1.2, 5 and 6.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sparing.core.record import Record
from sparing.studies._goals import Goal, GoalResult
from sparing.studies._value_analysis import Seeds, Values, paired
from sparing.studies._value_arms import (
    BASELINE,
    BOTH_WAYS,
    DROPOUT,
    FNN2,
    FNN3,
    LARGE,
    LSTM,
    NO_PLACES,
    PROPOSED,
    RNN2,
    SMALL,
)

OF_ANOTHER_KIND = ("NAU", "NAC", BASELINE)
Measure = Callable[[Values], Record | None]


@dataclass(frozen=True)
class Claim:
    """``text`` as published; it stands where the whole interval of ``measure`` is above ``bound``.

    ``quantity`` says what is measured.
    """

    key: str
    text: str
    quantity: str
    measure: Measure
    bound: float = 0.0


def _difference(name: str, ours: str, theirs: str, **labels: str) -> Measure:
    """How much larger a quantity is of one arm than of another, seed by seed."""

    def measure(values: Values) -> Record | None:
        return paired(values.by_seed(name, ours, **labels), values.by_seed(name, theirs, **labels))

    return measure


def _alone(name: str, arm: str, **labels: str) -> Measure:
    def measure(values: Values) -> Record | None:
        found = values.by_seed(name, arm, **labels)
        return paired(found, dict.fromkeys(found, 0.0)) if found else None

    return measure


def _leaning(values: Values) -> Record | None:
    """What the last of eight operands moves the answer by, less what the first does."""
    last, first = (values.by_seed("sensitivity", RNN2, operands=3, place=place) for place in (3, 1))
    return paired(last, first)


def _beyond_truth(values: Values) -> Record | None:
    """The share of answers nearer to the last number, less the share of true values that are."""
    found = values.by_seed("closer_to_last", RNN2)
    truth = next((r.labels["truth"] for r in values.records if r.name == "closer_to_last"), None)
    if not found or not isinstance(truth, int | float):
        return None
    return paired(found, dict.fromkeys(found, float(truth)))


def _over_the_best(values: Values) -> Record | None:
    """The published winner's bounded score less that of the best other network of its kind.

    Accumulators are not: the sum is built into them. Other FNNs are its own kind.
    """
    ours = values.by_seed("bounded_score", FNN2)
    others: list[Seeds] = [
        found
        for arm in values.arms
        if not arm.startswith("FNN")
        and arm not in OF_ANOTHER_KIND
        and None not in (found := values.by_seed("bounded_score", arm))
        if found
    ]
    if not ours or not others:
        return None
    best = max(others, key=lambda found: sum(found.values()) / len(found))
    return paired(ours, best)


CLAIMS: tuple[Claim, ...] = (
    Claim(
        "winner",
        "FNNs are, overall, the best at generalizing",
        f"bounded score of {FNN2} less that of the best that is no FNN and no accumulator",
        _over_the_best,
    ),
    Claim(
        "leaning",
        "tokens that appear later have a more significant impact on an RNN's prediction",
        f"{RNN2}, three operands in range: sensitivity to the last less that to the first",
        _leaning,
    ),
    Claim(
        "closer",
        "an RNN's output is almost always closer to the last number than to the first",
        f"{RNN2}: share of answers nearer to the last, less the share of true values",
        _beyond_truth,
    ),
    Claim(
        "large",
        "attention emphasizes outstandingly large numbers",
        f"{LSTM}: rank correlation of the weight on a number with its size",
        _alone("attention_size", LSTM),
    ),
    Claim(
        "large-both",
        "the same, of the network that the text describes",
        f"{BOTH_WAYS}: rank correlation of the weight on a number with its size",
        _alone("attention_size", BOTH_WAYS),
    ),
    Claim(
        "positions",
        "positions make a difference for FNNs (barely, as printed)",
        f"error out of range: {NO_PLACES} less {FNN3}",
        _difference("mean_error", NO_PLACES, FNN3, set="out"),
    ),
    Claim(
        "dropout",
        "with dropout models do not generalize beyond the training range",
        f"error out of range: {DROPOUT} less {FNN2}",
        _difference("mean_error", DROPOUT, FNN2, set="out"),
    ),
    Claim(
        "long",
        "LSTMs with attention predict longer expressions best",
        f"error on long sums: {FNN2} less {LSTM}",
        _difference("mean_error", FNN2, LSTM, set="long"),
    ),
    Claim(
        "long-transformers",
        "thanks to positions transformers handle longer inputs better than FNNs",
        f"error on long sums: {FNN2} less {SMALL}",
        _difference("mean_error", FNN2, SMALL, set="long"),
    ),
    Claim(
        "transformers",
        "transformers struggle with generalization more than FNNs",
        f"error out of range: {LARGE} less {FNN2}",
        _difference("mean_error", LARGE, FNN2, set="out"),
    ),
    Claim(
        "proposed",
        "attention should strengthen an FNN on longer expressions (a proposal)",
        f"error on long sums: {FNN2} less {PROPOSED}",
        _difference("mean_error", FNN2, PROPOSED, set="long"),
    ),
)


def judge(records: Sequence[Record]) -> list[GoalResult]:
    """Each claim: it stands, falls, or cannot be told from so few seeds."""
    values = Values(records)
    found = []
    for claim in CLAIMS:
        measured = claim.measure(values)
        goal = Goal(f"{claim.text}: {claim.quantity}", claim.bound, "")
        value = None if measured is None else measured.value
        interval = None if measured is None else measured.interval
        found.append(goal.judge(None if value is None else float(value), interval))
    return found
