"""The published claims, each as a number with a side on which it holds and one on which it fails.

Source: Mukin, A Predictive Calculator (2025), sections 1.2, 5 and 6.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sparing.core.record import Record
from sparing.experiment.claims import Claim, Estimate, GoalResult, Measure, decide, of_pairs
from sparing.experiment.records import RecordTable
from sparing_papers.calculator.analysis import by_seed, mean_of
from sparing_papers.calculator.further_claims import FURTHER
from sparing_papers.calculator.measures import alone, beside_all, claim, difference
from sparing_papers.calculator.names import (
    ACCUMULATORS,
    BASELINE,
    BOTH_WAYS,
    DROPOUT,
    FIXED,
    FNN2,
    FNN3,
    LARGE,
    LSTM,
    NETWORKS,
    NO_PLACES,
    PROPOSED,
    PUBLISHED,
    RNN2,
    SMALL,
)

VERDICTS = {"True": "holds", "False": "fails"}


def _leaning(table: RecordTable, confidence: float) -> Estimate | None:
    """What the last of three operands moves the answer by, less what the first does."""
    last, first = (by_seed(table, "sensitivity", RNN2, operands=3, place=n) for n in (3, 1))
    return of_pairs(last, first, confidence)


def _over_the_best(table: RecordTable, confidence: float) -> Estimate | None:
    """The published winner's bounded score less that of each network that is no FNN.

    Accumulators do not count: the sum is built into them.
    """
    ours = by_seed(table, "bounded_score", FNN2)
    arms = dict.fromkeys([*PUBLISHED, *map(str, table.values_of("exact", "arm"))])
    baselines = (arm for arm in arms if not arm.startswith("FNN"))
    scores = [
        by_seed(table, "bounded_score", arm)
        for arm in baselines
        if arm not in (*ACCUMULATORS, BASELINE)
    ]
    return beside_all([(ours, score) for score in scores if None not in score], confidence)


def _best_of_all(ours: str, name: str, group: str) -> Measure:
    """The error of each other published variant less that of ``ours``."""

    def measure(table: RecordTable, confidence: float) -> Estimate | None:
        errors = {arm: by_seed(table, name, arm, set=group) for arm in PUBLISHED}
        candidate = errors.pop(ours)
        return beside_all([(error, candidate) for error in errors.values()], confidence)

    return measure


def _transformers_worst(name: str, group: str) -> Measure:
    """The error of each published transformer less that of each other published variant."""

    def measure(table: RecordTable, confidence: float) -> Estimate | None:
        errors = {arm: by_seed(table, name, arm, set=group) for arm in PUBLISHED}
        ours = [errors.pop(arm) for arm in (SMALL, LARGE)]
        return beside_all(
            [(candidate, other) for candidate in ours for other in errors.values()], confidence
        )

    return measure


CLAIMS: tuple[Claim, ...] = (
    claim(
        "FNNs are, overall, the best at generalizing",
        f"bounded score of {FNN2} less that of each that is no FNN and no accumulator, the least",
        _over_the_best,
    ),
    claim(
        "tokens that appear later have a more significant impact on an RNN's prediction",
        f"{RNN2}, three operands in range: sensitivity to the last less that to the first",
        _leaning,
    ),
    claim(
        "an RNN's output is almost always closer to the last number than to the first",
        f"{RNN2}: share of answers in range that are nearer to the last, 0.9 asked for",
        alone("closer_to_last", RNN2),
        0.9,
    ),
    claim(
        "attention emphasizes outstandingly large numbers",
        f"{LSTM}: rank correlation of the weight on a number with its size, 0.3 asked for",
        alone("attention_size", LSTM),
        0.3,
    ),
    claim(
        "the same, of the network that the text describes",
        f"{BOTH_WAYS}: rank correlation of the weight on a number with its size, 0.3 asked for",
        alone("attention_size", BOTH_WAYS),
        0.3,
        "variant",
    ),
    claim(
        "positions improve an FNN, minimally",
        f"published score: {FNN3} less {NO_PLACES}",
        difference("legacy_score", FNN3, NO_PLACES),
    ),
    claim(
        "with dropout models generalize worse beyond the training range",
        f"error out of range: {DROPOUT} less {FNN2}",
        difference("mean_error", DROPOUT, FNN2, set="out"),
    ),
    claim(
        "LSTMs with attention predict longer expressions best of all models studied",
        f"error on long sums: each other published network's less that of {LSTM}, the least",
        _best_of_all(LSTM, "mean_error", group="long"),
    ),
    claim(
        "thanks to positions transformers handle longer inputs better than FNNs",
        f"error on long sums: {FNN2} less {SMALL}",
        difference("mean_error", FNN2, SMALL, set="long"),
    ),
    claim(
        "transformers struggle with generalization more than other models",
        f"error out of range: {SMALL} and {LARGE} less each other published network, the least",
        _transformers_worst("mean_error", group="out"),
    ),
    claim(
        "attention should strengthen an FNN on longer expressions",
        f"error on long sums: {FNN2} less {PROPOSED}",
        difference("mean_error", FNN2, PROPOSED, set="long"),
        kind="proposal",
    ),
)


EVERY = (*CLAIMS, *FURTHER)


def claims_of(questions: Sequence[str]) -> list[Claim]:
    """The claims that a run with these questions decides."""
    return [one for one in EVERY if {*one.questions} & {*questions}]


def decide_goals(
    records: Sequence[Record], questions: Sequence[str] = (NETWORKS,)
) -> list[GoalResult]:
    """Each claim of these questions: it holds, fails, or is undecided."""
    return decide(claims_of(questions), RecordTable(records))


def verdict_of(goal: Mapping[str, Any]) -> str:
    """What a decided goal says of its claim."""
    return VERDICTS.get(str(goal.get("met")), "undecided")


def ranked(table: RecordTable, trained: Sequence[str]) -> list[tuple[str, float]]:
    """Trained networks without an accumulator built in, the highest bounded score first."""
    left_out = (BASELINE, *ACCUMULATORS, *FIXED)
    scores = {arm: mean_of(table, "bounded_score", arm) for arm in trained if arm not in left_out}
    known = [(arm, float(r.value)) for arm, r in scores.items() if r and r.value is not None]
    return sorted(known, key=lambda pair: -pair[1])


def is_clearly_above(table: RecordTable, first: str, second: str) -> bool:
    """Whether the first network's bounded score is above the second's, seed by seed."""
    ours, theirs = (by_seed(table, "bounded_score", arm) for arm in (first, second))
    gap = of_pairs(ours, theirs, 0.95)
    return gap is not None and gap.interval is not None and gap.interval[0] > 0
