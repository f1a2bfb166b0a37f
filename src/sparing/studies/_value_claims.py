"""The published claims, each as a number with a side on which it stands and one on which it falls.

Source: Mukin, A Predictive Calculator (2025), sections 1.2, 5 and 6.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from sparing.core.record import Record
from sparing.studies._goals import Goal, GoalResult
from sparing.studies._value_analysis import Values, paired
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
    PUBLISHED,
    RNN2,
    SMALL,
)

FEWEST_SEEDS = 5
OF_ANOTHER_KIND = ("NAU", "NAC", BASELINE)
Measure = Callable[[Values], Record | None]


@dataclass(frozen=True)
class Claim:
    """``text`` as published; it stands where the whole interval of ``measure`` is above ``bound``.

    ``quantity`` says what is measured, ``kind`` whether it is a claim, what the text proposes
    without having tried it, or a claim asked of another network.
    """

    key: str
    text: str
    quantity: str
    measure: Measure
    bound: float = 0.0
    kind: Literal["claim", "proposal", "variant"] = "claim"


def _compared(ours: Mapping[Any, float], theirs: Mapping[Any, float]) -> Record | None:
    """A difference, its interval so wide that all claims together err in one study of twenty."""
    return paired(ours, theirs, confidence=1 - 0.05 / len(CLAIMS)) if ours and theirs else None


def _difference(name: str, ours: str, theirs: str, **labels: str) -> Measure:
    """How much larger a quantity is of one arm than of another, seed by seed."""

    def measure(values: Values) -> Record | None:
        one, other = (values.by_seed(name, arm, **labels) for arm in (ours, theirs))
        return _compared(one, other)

    return measure


def _alone(name: str, arm: str, **labels: str) -> Measure:
    def measure(values: Values) -> Record | None:
        found = values.by_seed(name, arm, **labels)
        return _compared(found, dict.fromkeys(found, 0.0))

    return measure


def _leaning(values: Values) -> Record | None:
    """What the last of three operands moves the answer by, less what the first does."""
    last, first = (values.by_seed("sensitivity", RNN2, operands=3, place=n) for n in (3, 1))
    return _compared(last, first)


def _over_the_best(values: Values) -> Record | None:
    """The published winner's bounded score less that of the best network that is no FNN.

    Accumulators do not count: the sum is built into them.
    """
    ours = values.by_seed("bounded_score", FNN2)
    arms = [a for a in values.arms if not a.startswith("FNN") and a not in OF_ANOTHER_KIND]
    others = [found for arm in arms if (found := values.by_seed("bounded_score", arm))]
    trained = [found for found in others if None not in found]
    return _compared(ours, max(trained, key=_mean)) if trained else None


def _beyond_the_rest(ours: str, name: str, *, worst: bool, group: str) -> Measure:
    """An arm's error beside that of the published arm that is best, or worst, of the others.

    The best: the other's error less ours. The worst, transformers left out: ours less the other's.
    """

    def measure(values: Values) -> Record | None:
        rest = [
            found
            for arm in PUBLISHED
            if arm != ours and not (worst and arm in (SMALL, LARGE))
            if (found := values.by_seed(name, arm, set=group))
        ]
        own = values.by_seed(name, ours, set=group)
        if not rest or not own:
            return None
        return (
            _compared(own, max(rest, key=_mean)) if worst else _compared(min(rest, key=_mean), own)
        )

    return measure


def _mean(found: Mapping[Any, float]) -> float:
    return sum(found.values()) / len(found)


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
        f"{RNN2}: share of answers in range that are nearer to the last, 0.9 asked for",
        _alone("closer_to_last", RNN2),
        0.9,
    ),
    Claim(
        "large",
        "attention emphasizes outstandingly large numbers",
        f"{LSTM}: rank correlation of the weight on a number with its size, 0.3 asked for",
        _alone("attention_size", LSTM),
        0.3,
    ),
    Claim(
        "large-both",
        "the same, of the network that the text describes",
        f"{BOTH_WAYS}: rank correlation of the weight on a number with its size, 0.3 asked for",
        _alone("attention_size", BOTH_WAYS),
        0.3,
        "variant",
    ),
    Claim(
        "positions",
        "positions help FNNs, if barely",
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
        "LSTMs with attention predict longer expressions best of all models studied",
        f"error on long sums: the best other published network's less that of {LSTM}",
        _beyond_the_rest(LSTM, "mean_error", worst=False, group="long"),
    ),
    Claim(
        "long-transformers",
        "thanks to positions transformers handle longer inputs better than FNNs",
        f"error on long sums: {FNN2} less {SMALL}",
        _difference("mean_error", FNN2, SMALL, set="long"),
    ),
    Claim(
        "transformers",
        "transformers struggle with generalization more than other models",
        f"error out of range: {LARGE} less the worst published network that is no transformer",
        _beyond_the_rest(LARGE, "mean_error", worst=True, group="out"),
    ),
    Claim(
        "proposed",
        "attention should strengthen an FNN on longer expressions",
        f"error on long sums: {FNN2} less {PROPOSED}",
        _difference("mean_error", FNN2, PROPOSED, set="long"),
        kind="proposal",
    ),
)


def judge(records: Sequence[Record]) -> list[GoalResult]:
    """Each claim: it stands, falls, or cannot be told; fewer than five seeds tell nothing."""
    values = Values(records)
    found = []
    for claim in CLAIMS:
        measured = claim.measure(values)
        goal = Goal(f"{claim.text}: {claim.quantity}", claim.bound, "")
        if measured is None or measured.value is None:
            found.append(goal.judge(None, None))
            continue
        result = goal.judge(float(measured.value), measured.interval)
        few = measured.count < FEWEST_SEEDS
        flat = measured.interval == (claim.bound, claim.bound)
        found.append(replace(result, met="undecided") if few or flat else result)
    return found
