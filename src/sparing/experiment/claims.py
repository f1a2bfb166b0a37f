"""Claims: what an experiment sets out to show, and the one rule by which records decide it.

A claim is a number with a side on which it holds. An interval decides it, never the number alone.
It holds where the whole interval is on the good side, fails where none of it is, and is undecided
otherwise.

Claims of one family are decided together by Holm's steps (Holm, 1979, Scandinavian Journal of
Statistics 6, 65-70). At most one study in twenty then makes any wrong decision. Each of k open
claims is tested at a confidence of 1 - 0.05 / k. Decided claims leave the family, and the rest are
tested again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, Literal

from scipy.stats import norm
from scipy.stats import t as student

from sparing.core.record import Label, Record
from sparing.experiment.forecasts.needs import ROUNDS, SEEDS, Forecast, Need, joined, needed
from sparing.experiment.records import RecordTable
from sparing.experiment.summary import K, paired
from sparing.measure.forecast import FEWEST, resized
from sparing.measure.statistics import FEWEST_WITHOUT_SPREAD, mean_difference

Met = bool | Literal["undecided"]
Scale = Literal["plain", "log"]
ERROR = 0.05
FEWEST_SEEDS = 3


@dataclass(frozen=True)
class Goal:
    """A declared aim: ``value`` must be at least (or at most) ``target``."""

    name: str
    target: float
    unit: str
    at_most: bool = False
    required: bool = False

    def decide(
        self,
        value: float | None,
        interval: tuple[float, float] | None,
        disturbance: str = "",
    ) -> GoalResult:
        """Met when the whole interval satisfies the target, missed when none of it does.

        ``disturbance`` says why a time decides nothing, such as a machine that was busy.
        """
        met: Met = "undecided"
        if interval is not None and not disturbance:
            low, high = interval
            good, bad = (
                (high <= self.target, low > self.target)
                if self.at_most
                else (low >= self.target, high < self.target)
            )
            met = True if good else False if bad else "undecided"
        note = f"not decided: the machine was busy ({disturbance})" if disturbance else ""
        return GoalResult(
            self.name, self.target, self.unit, value, interval, met, self.required, note
        )


@dataclass(frozen=True)
class GoalResult:
    """A goal beside what was measured; ``note`` says why a time does not decide it, else empty.

    ``need`` is what an undecided goal would need; ``forecast`` the intervals of other numbers of
    seeds, where they follow from what was measured. It is not written into files.
    """

    name: str
    target: float
    unit: str
    value: float | None
    interval: tuple[float, float] | None
    met: Met
    required: bool = False
    note: str = ""
    need: Need | None = None
    forecast: Forecast | None = field(default=None, compare=False, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """For JSON, without a note or a need where there is none."""
        facts = asdict(replace(self, need=None, forecast=None))
        del facts["need"], facts["forecast"]
        facts |= {} if self.need is None else {"need": self.need.to_dict()}
        return {name: value for name, value in facts.items() if name != "note" or value}


@dataclass(frozen=True)
class Estimate:
    """A measured quantity: its interval at the requested confidence, None without one.

    ``count`` is the number of seeds or pairs behind the interval; None for timed rounds and exact
    counts. ``disturbance`` says why a time decides nothing. ``forecast`` gives the intervals of
    other numbers of seeds or rounds; ``lacks`` says what is missing where there is none.
    """

    value: float
    interval: tuple[float, float] | None
    count: int | None = None
    disturbance: str = ""
    forecast: Forecast | None = field(default=None, compare=False, repr=False)
    lacks: str = field(default="", compare=False)


Measure = Callable[[RecordTable, float], Estimate | None]
Guard = Callable[[RecordTable, GoalResult], bool]


@dataclass(frozen=True)
class Condition:
    """A guard with words for what a claim needs that it does not let through."""

    allows: Guard
    needs: str

    def __call__(self, records: RecordTable, result: GoalResult) -> bool:
        """Whether the guard lets the claim through."""
        return self.allows(records, result)


@dataclass(frozen=True)
class Claim:
    """``measure`` gives a quantity at a confidence; it holds at or above ``target``.

    With ``at_most`` it holds at or below. ``fewest`` seeds are needed where the estimate rests on
    seeds. Each of ``guards`` says whether the records can decide the claim, such as that dense
    attention passes the task's sensitivity check; its second argument is the claim's result. Claims
    of one ``family`` are decided together; without a family a claim is decided alone. ``kind``
    separates published claims from the study's goals; ``questions`` are those it belongs to.
    ``unmeasured`` says what the claim needs where nothing was measured.
    """

    text: str
    measure: Measure
    target: float
    unit: str = ""
    at_most: bool = False
    fewest: int = FEWEST_SEEDS
    guards: Sequence[Guard] = ()
    family: str = ""
    kind: str = "goal"
    questions: Sequence[str] = ()
    required: bool = False
    unmeasured: str = "a measurement"

    @property
    def goal(self) -> Goal:
        """The claim as a name with a target."""
        return Goal(self.text, self.target, self.unit, self.at_most, self.required)


def decide(claims: Iterable[Claim], records: RecordTable) -> list[GoalResult]:
    """Every claim beside what was measured, in the order of the claims."""
    ordered = list(claims)
    results: dict[int, GoalResult] = {}
    families: dict[str, list[int]] = {}
    for number, claim in enumerate(ordered):
        families.setdefault(claim.family or f"\0{number}", []).append(number)
    for members in families.values():
        results |= _together({number: ordered[number] for number in members}, records)
    return [results[number] for number in range(len(ordered))]


def _together(claims: Mapping[int, Claim], records: RecordTable) -> dict[int, GoalResult]:
    """Holm's steps over the claims of one family that the records can decide."""
    results: dict[int, GoalResult] = {}
    waiting: dict[int, Claim] = {}
    for number, claim in claims.items():
        estimate = claim.measure(records, 1 - ERROR)
        result = _result(claim, estimate)
        if _can_decide(claim, estimate) and _allowed(claim, records, result):
            waiting[number] = claim
        else:
            need = _need_first(claim, estimate, records, result)
            results[number] = replace(result, met="undecided", need=need)
    while waiting:
        tried = {
            number: _result(claim, claim.measure(records, 1 - ERROR / len(waiting)))
            for number, claim in waiting.items()
        }
        results |= tried
        decided = {number for number, result in tried.items() if result.met != "undecided"}
        if not decided:
            break
        waiting = {number: claim for number, claim in waiting.items() if number not in decided}
    needs = {n: replace(results[n], need=_need_of(claims[n], records, results[n])) for n in waiting}
    return results | needs


def _can_decide(claim: Claim, estimate: Estimate | None) -> bool:
    if estimate is None or estimate.interval is None or estimate.disturbance:
        return False
    return estimate.count is None or estimate.count >= _least_seeds(claim, estimate)


def _least_seeds(claim: Claim, estimate: Estimate) -> int:
    """More where seeds agree to the last answer."""
    coarse = estimate.interval is not None and math.isclose(*estimate.interval)
    return max(claim.fewest, FEWEST_WITHOUT_SPREAD) if coarse else claim.fewest


def _allowed(claim: Claim, records: RecordTable, result: GoalResult) -> bool:
    return all(guard(records, result) for guard in claim.guards)


def _result(claim: Claim, estimate: Estimate | None) -> GoalResult:
    if estimate is None:
        return claim.goal.decide(None, None)
    decided = claim.goal.decide(estimate.value, estimate.interval, estimate.disturbance)
    return replace(decided, forecast=estimate.forecast)


def _need_first(
    claim: Claim, estimate: Estimate | None, records: RecordTable, result: GoalResult
) -> Need:
    """What a claim needs before its interval counts."""
    if estimate is None:
        return Need(why=claim.unmeasured)
    if estimate.disturbance:
        return Need(why="a machine that does nothing else")
    least_seeds = _least_seeds(claim, estimate)
    blocked = _blocked(claim, records, result)
    if estimate.count is not None and estimate.count < least_seeds:
        return Need(why=f"at least {least_seeds} seeds")
    return Need(why=blocked or estimate.lacks or "more measurements: there is no interval")


def _blocked(claim: Claim, records: RecordTable, result: GoalResult) -> str:
    """What the guards need that do not let a result through; empty where all do."""
    failing = [guard for guard in claim.guards if not guard(records, result)]
    return "; ".join(dict.fromkeys(str(getattr(guard, "needs", "other data")) for guard in failing))


def _need_of(claim: Claim, records: RecordTable, result: GoalResult) -> Need:
    """How many seeds would decide a claim, and what its guards would still need then."""
    forecast, goal = result.forecast, claim.goal
    if forecast is None:
        estimate = claim.measure(records, 1 - ERROR)
        return Need(why=(estimate.lacks if estimate else "") or "another measurement")
    need = needed(forecast, lambda ends: goal.decide(result.value, ends).met != "undecided")
    if need.beyond or not need.count:
        return need
    then = goal.decide(result.value, forecast.at(need.count))
    return replace(need, why=_blocked(claim, records, then))


def recorded(name: str, **labels: Label) -> Measure:
    """The newest record of a name with these labels, a mean over seeds, at any confidence."""

    def measure(records: RecordTable, confidence: float) -> Estimate | None:
        record = records.find(name, **labels)
        return None if record is None else of_record(record, confidence, records)

    return measure


def of_record(
    record: Record,
    confidence: float,
    records: RecordTable | None = None,
    scale: Scale = "plain",
    *,
    of_seeds: bool = True,
    of: str = "",
) -> Estimate:
    """A record with its 95 % interval as one at another confidence.

    Each side of a mean over seeds grows with Student's quantiles, any other with the normal ones.
    On a ``log`` scale, for ratios, the logarithm grows. With ``records``, a time that was taken on
    a busy machine decides nothing. ``of`` says what the record's count is of: of ratios that are
    not of seeds it is rounds, of others more of them cannot be forecast unless it is given.
    """
    disturbance = "" if records is None else records.disturbance(record)
    value, count = float(record.value or 0.0), record.count if of_seeds else None
    ends = None
    if record.interval is not None:
        ends = widened(value, record.interval, confidence, count, scale)
    of = of or (SEEDS if of_seeds else ROUNDS if scale == "log" else "")
    return Estimate(value, ends, count, disturbance, _of_more(record, confidence, scale, of))


def _of_more(record: Record, confidence: float, scale: Scale, of: str) -> Forecast | None:
    """The forecast of a record's interval; None without one, or of what cannot be more."""
    if record.interval is None or record.count < FEWEST or not of:
        return None
    value, interval = float(record.value or 0.0), record.interval
    before = float(interval[0]), float(interval[1])

    def at(count: int) -> tuple[float, float]:
        ends = resized(value, before, record.count, count, 1 - ERROR, log=scale == "log")
        return widened(value, ends, confidence, count if of == SEEDS else None, scale)

    return Forecast(of, record.count, at)


def of_pairs(
    candidate: Mapping[K, float], baseline: Mapping[K, float], confidence: float
) -> Estimate | None:
    """The mean difference over the seeds that both have, with Student's interval."""
    values, against = paired(candidate, baseline)
    if not values:
        return None
    gap = mean_difference(values, against, confidence=confidence)
    if gap.interval is None:
        return Estimate(gap.value, None, gap.count)
    more = partial(resized, gap.value, gap.interval, gap.count, confidence=confidence)
    return Estimate(gap.value, gap.interval, gap.count, forecast=Forecast(SEEDS, gap.count, more))


def widened(
    value: float,
    interval: tuple[float, float],
    confidence: float,
    count: int | None = None,
    scale: Scale = "plain",
) -> tuple[float, float]:
    """A 95 % interval at another confidence; ``count`` seeds give Student's quantiles."""
    if math.isclose(confidence, 1 - ERROR):
        return interval
    tails = [(1 + level) / 2 for level in (confidence, 1 - ERROR)]
    spread = student(count - 1) if count and count > 1 else norm
    factor = float(spread.ppf(tails[0]) / spread.ppf(tails[1]))
    low, high = (float(end) for end in interval)
    if scale == "log":
        if min(value, low) <= 0:
            return low, high
        return value * (low / value) ** factor, value * (high / value) ** factor
    return value - factor * (value - low), value + factor * (high - value)


def least(estimates: Sequence[Estimate | None], wide: Sequence[Estimate | None]) -> Estimate | None:
    """The least of several, its interval from the least lower to the least upper end.

    All of them exceed a target only if every lower end does. A single one below it is enough to
    fail, and one of many is below it by chance. The upper ends are therefore those of ``wide``: the
    same estimates with intervals that hold for all of them at once. Missing estimates are left out.
    There is no interval where a measured estimate has none.
    """
    known = [estimate for estimate in estimates if estimate is not None]
    if not known:
        return None
    smallest = min(known, key=lambda estimate: estimate.value)
    lows = [estimate.interval[0] for estimate in known if estimate.interval]
    highs = [estimate.interval[1] for estimate in wide if estimate and estimate.interval]
    counts = [estimate.count for estimate in known if estimate.count is not None]
    whole = len(lows) == len(highs) == len(known)
    interval = (min(lows), min(highs)) if whole else None
    more = _least_of_more(known, [estimate for estimate in wide if estimate is not None])
    count = min(counts, default=None)
    return replace(smallest, interval=interval, count=count, forecast=more)


def _least_of_more(known: Sequence[Estimate], wide: Sequence[Estimate]) -> Forecast | None:
    """The forecast of ``least``: every one of the estimates has as many seeds."""
    sides = [*known, *wide]

    def join(ends: list[tuple[float, float]]) -> tuple[float, float]:
        lows, highs = ends[: len(known)], ends[len(known) :]
        return min(low for low, _ in lows), min(high for _, high in highs)

    return joined([estimate.forecast for estimate in sides], join)


def at_once(confidence: float, members: int) -> float:
    """The confidence of each interval, so that all of them hold together at the given one."""
    return 1 - (1 - confidence) / max(1, members)
