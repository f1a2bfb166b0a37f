"""The results of Kerformer's tables of time and memory, for claims and goals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sparing.core.record import Record
from sparing.experiment.arms import family_of
from sparing.experiment.claims import Estimate, Measure, at_once, least, of_record
from sparing.experiment.forecasts.needs import joined
from sparing.experiment.records import RecordTable
from sparing_papers.kerformer.cores import RANGE
from sparing_papers.long_range.arms import BY_CONTENT, DENSE, KERFORMER, arm_of

LINEAR = ("kernel", "low-rank")  # families of linear cost in the length
BASELINES = ("efficient", "linear", "performer")
MILLION, LONG = 1_000_000, 65_536


def lengths_won(records: RecordTable, confidence: float) -> Estimate | None:
    """The share of lengths below a million at which kerformer takes less time than each baseline.

    From those at which it clearly does to those at which no baseline is clearly the faster; lengths
    at which one of them was not timed are not counted.
    """
    ratios = _of_baselines(records)
    by_length = [[r for r in ratios if _tokens(r) == n] for n in {_tokens(r) for r in ratios}]
    worst = [
        _least(of_length, confidence)
        for of_length in by_length
        if len(of_length) == len(BASELINES) and _tokens(of_length[0]) < MILLION
    ]
    known = [estimate for estimate in worst if estimate is not None]
    if not known:
        return None
    won = sum(estimate.value > 1 for estimate in known) / len(known)
    ends = [estimate.interval for estimate in known if estimate.interval is not None]
    if len(ends) < len(known):
        return Estimate(won, None)
    more = joined([estimate.forecast for estimate in known], _won)
    return Estimate(won, _won(ends), forecast=more)


def _won(ends: list[tuple[float, float]]) -> tuple[float, float]:
    """The share of ratios that are surely above 1, and of those that may be."""
    sure, possible = (sum(end[side] > 1 for end in ends) / len(ends) for side in (0, 1))
    return sure, possible


def range_effect(records: RecordTable, confidence: float) -> Estimate | None:
    """Softmax: the largest range's time over that of values up to 2."""
    ratios = records.all("range_ratio", arm=DENSE)
    widest = max(ratios, key=lambda r: float(r.labels["spread"] or 0), default=None)
    return None if widest is None else _ratio(widest, confidence)


def time_at_ranges(records: RecordTable, confidence: float) -> Estimate | None:
    """The least of the baselines' times over kerformer's, at the length of Table 2.

    There values are those up to 2: what their range does is measured on each variant alone.
    """
    lengths = records.values_of("range_ms", "tokens")
    ratios = [record for record in _of_baselines(records) if record.labels["tokens"] in lengths]
    return _least(ratios, confidence) if len(ratios) == len(BASELINES) else None


def memory_at_ranges(records: RecordTable, confidence: float) -> Estimate | None:
    """The least of the baselines' peaks over kerformer's, at the length of Table 3, up to 2."""
    lengths = records.values_of("range_ms", "tokens")
    peaks = {
        str(record.labels["arm"]): float(record.value or 0.0)
        for record in records.all("peak_bytes", question="cores", spread=RANGE)
        if record.labels["tokens"] in lengths
    }
    if BY_CONTENT not in peaks or not {*BASELINES} <= peaks.keys():
        return None
    return _sure(min(peaks[arm] for arm in BASELINES) / peaks[BY_CONTENT])


def speed_over(kind: str, over: str = "", least_tokens: int = 0) -> Measure:
    """The least speed of kerformer over a baseline's, by default over all linear variants'."""

    def measure(records: RecordTable, confidence: float) -> Estimate | None:
        baselines = [
            record
            for record in records.all("speed_up", kind=kind, over=KERFORMER)
            if (record.labels["arm"] == over if over else _is_linear_baseline(record))
            and _tokens(record) >= least_tokens
        ]
        return _least([_inverse(record) for record in baselines], confidence)

    return measure


def _of_baselines(records: RecordTable) -> list[Record]:
    ratios = records.all("latency_ratio", over=BY_CONTENT)
    return [record for record in ratios if record.labels["arm"] in BASELINES]


def _tokens(record: Record) -> int:
    return int(record.labels["tokens"] or 0)


def is_linear(record: Record) -> bool:
    """Whether the cost of a record's variant grows with the length alone."""
    return family_of(arm_of(str(record.labels["arm"])).mechanism) in LINEAR


def _is_linear_baseline(record: Record) -> bool:
    return record.labels["arm"] not in (KERFORMER, BY_CONTENT) and is_linear(record)


def _inverse(record: Record) -> Record:
    ends = record.interval and (1 / float(record.interval[1]), 1 / float(record.interval[0]))
    return replace(record, value=1 / float(record.value or 1.0), interval=ends)


def _least(records: Sequence[Record], confidence: float) -> Estimate | None:
    """The least of several ratios."""
    together = at_once(confidence, len(records))
    alone, wide = ([_ratio(r, level) for r in records] for level in (confidence, together))
    return least(alone, wide)


def _ratio(record: Record, confidence: float) -> Estimate:
    """A ratio with its interval at a confidence, as if its logarithm were normal."""
    return of_record(record, confidence, scale="log", of_seeds=False)


def _sure(value: float) -> Estimate:
    """What was counted, not sampled."""
    return Estimate(value, (value, value))


def speed_up(records: RecordTable, arm: str, confidence: float) -> Estimate | None:
    """A variant's training speed over softmax's at the longest length both were timed at."""
    ratios = records.all("speed_up", kind="training", over=DENSE, arm=arm)
    longest = max(ratios, key=_tokens, default=None)
    return None if longest is None else _ratio(longest, confidence)


def peak_share(records: RecordTable, arm: str, baseline: str) -> Estimate | None:
    """The peak memory of a training step over a baseline's."""
    ours, theirs = (
        records.value("peak_bytes", question="speed", kind="training", arm=name)
        for name in (arm, baseline)
    )
    return _sure(ours / theirs) if ours and theirs else None


def longest_bytes(records: RecordTable, confidence: float) -> Estimate | None:
    """The least peak of a forward pass over 65,536 tokens of a linear mechanism."""
    peaks = [
        float(record.value or 0.0)
        for record in records.all("peak_bytes", kind="inference")
        if _tokens(record) >= LONG and is_linear(record)
    ]
    return _sure(min(peaks)) if peaks else None


def million(records: RecordTable, confidence: float) -> Estimate | None:
    """The longest sequence that kerformer was run on alone; None where none so long was planned."""
    run, planned = (
        [float(r.labels["tokens"] or 0) for r in records.matching(name, {"arm": BY_CONTENT})]
        for name in ("latency_ms", "not_run")
    )
    return _sure(max(run)) if run and max(run + planned) >= MILLION else None
