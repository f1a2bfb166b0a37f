"""The claims of a comparison, and the verdicts that the decided claims give each variant."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Literal

from sparing.experiment.claims import Claim, Estimate, GoalResult, of_record, recorded
from sparing.experiment.records import RecordTable

Accuracy = Literal["better", "no worse", "worse", "undecided"]
Speed = Literal["faster", "slower", "undecided"]


def claims_of(
    arms: Sequence[str], baseline: str, margin: float, chance: float, tokens: int
) -> list[Claim]:
    """Dense beats chance; each variant is as accurate as dense, and faster at the task's length."""
    others = [arm for arm in arms if arm != baseline]
    pairs = zip(accuracy_claims(others, margin), latency_claims(others, tokens), strict=True)
    return [_above_chance(baseline, chance), *(claim for pair in pairs for claim in pair)]


def accuracy_claims(others: Sequence[str], margin: float) -> list[Claim]:
    """Each variant's accuracy is no worse than dense's by the margin, decided together."""
    return [
        Claim(
            f"{arm}: accuracy less dense",
            recorded("accuracy_difference", arm=arm),
            -margin,
            "share",
            family="accuracy",
        )
        for arm in others
    ]


def latency_claims(others: Sequence[str], tokens: int) -> list[Claim]:
    """Each variant's whole model takes no longer than dense's on one input, decided together."""
    return [
        Claim(
            f"{arm}: model latency over dense at {tokens} tokens",
            partial(_latency, arm),
            1.0,
            "ratio",
            at_most=True,
            family="latency",
        )
        for arm in others
    ]


def accuracy_verdict(result: GoalResult) -> Accuracy:
    """The decided claim in a word: better where the interval that decided it is above 0."""
    if result.met is True:
        return "better" if result.interval is not None and result.interval[0] > 0 else "no worse"
    return "worse" if result.met is False else "undecided"


def speed_verdict(result: GoalResult) -> Speed:
    """The decided claim in a word: an interval that touches 1 is met, and no faster."""
    if result.met is False:
        return "slower"
    faster = result.met is True and result.interval is not None and result.interval[1] < 1
    return "faster" if faster else "undecided"


def _above_chance(baseline: str, chance: float) -> Claim:
    def least(records: RecordTable, confidence: float) -> Estimate | None:
        scores = records.all("accuracy", arm=baseline)
        above = min((float(r.value or 0.0) - chance for r in scores), default=None)
        return None if above is None else Estimate(above, (above, above))  # one seed can fail it

    return Claim(f"{baseline} above chance in every seed", least, 0.05, "share")


def _latency(arm: str, records: RecordTable, confidence: float) -> Estimate | None:
    ratio = records.find("latency_ratio", arm=arm, scope="model", batch=1)
    if ratio is None:
        return None
    return of_record(ratio, confidence, records, "log", of_seeds=False)
