"""What Kerformer's tables of time and memory come to: numbers that claims and goals ask for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from sparing.core.record import Record
from sparing.experiment.arms import family_of
from sparing.experiment.claims import Estimate, at_once, widened
from sparing.experiment.claims import least as least_of
from sparing_papers.kerformer.cores import RANGE
from sparing_papers.long_range.arms import BY_CONTENT, DENSE, KERFORMER, arm_of

Records = Sequence[Record]
Found = tuple[float, tuple[float, float] | None] | None
Measure = Callable[[Records, float], Found]
LINEAR = ("kernel", "low-rank")  # families whose cost grows with the length alone
RIVALS = ("efficient", "linear", "performer")
MILLION = 1_000_000


def lengths_won(records: Records, confidence: float = 0.95) -> Found:
    """The share of lengths below a million at which kerformer takes less time than each rival.

    From those at which it clearly does to those at which no rival is clearly the faster; lengths
    at which one of them was not timed are not counted.
    """
    lengths: dict[int, list[Record]] = {}
    for r in records:
        asked = r.name == "latency_ratio" and r.labels.get("over") == BY_CONTENT
        tokens = int(r.labels.get("tokens") or 0)
        if asked and r.labels.get("arm") in RIVALS and tokens < MILLION:
            lengths.setdefault(tokens, []).append(r)
    whole = [found for found in lengths.values() if len(found) == len(RIVALS)]
    least = [found for one in whole if (found := _least(one, confidence)) is not None]
    if not least:
        return None
    won = sum(value > 1 for value, _ in least) / len(least)
    ends = [interval for _, interval in least if interval is not None]
    if len(ends) < len(least):
        return won, None
    sure, open_ = (sum(end[side] > 1 for end in ends) / len(ends) for side in (0, 1))
    return won, (sure, open_)


def range_effect(records: Records, confidence: float = 0.95) -> Found:
    """Softmax: the largest range's time over that of values up to 2."""
    found = [r for r in records if r.name == "range_ratio" and r.labels.get("arm") == DENSE]
    if not found:
        return None
    widest = max(found, key=lambda r: float(r.labels["spread"] or 0))
    return _at(widest, confidence)


def time_at_ranges(records: Records, confidence: float = 0.95) -> Found:
    """The least of the rivals' times over kerformer's, at the length of Table 2.

    There values are those up to 2: what their range does is asked of each arm alone.
    """
    asked = {r.labels.get("tokens") for r in records if r.name == "range_ms"}
    found = [
        r
        for r in records
        if r.name == "latency_ratio"
        and r.labels.get("over") == BY_CONTENT
        and r.labels.get("arm") in RIVALS
        and r.labels.get("tokens") in asked
    ]
    return _least(found, confidence) if len(found) == len(RIVALS) else None


def memory_at_ranges(records: Records, confidence: float = 0.95) -> Found:
    """The least of the rivals' peaks over kerformer's, at the length of Table 3, values up to 2."""
    asked = {r.labels.get("tokens") for r in records if r.name == "range_ms"}
    peaks = {
        str(r.labels["arm"]): float(r.value or 0.0)
        for r in records
        if r.name == "peak_bytes"
        and r.labels.get("question") == "cores"
        and r.labels.get("tokens") in asked
        and r.labels.get("spread") == RANGE
    }
    if BY_CONTENT not in peaks or not {*RIVALS} <= peaks.keys():
        return None
    share = min(peaks[arm] for arm in RIVALS) / peaks[BY_CONTENT]
    return share, (share, share)


def speed_over(kind: str, over: str = "", least_tokens: int = 0) -> Measure:
    """The least speed of kerformer over a rival's; without one over every other linear arm's."""

    def measure(records: Records, confidence: float = 0.95) -> Found:
        found = [
            r
            for r in records
            if r.name == "speed_up"
            and r.labels.get("kind") == kind
            and r.labels.get("over") == KERFORMER
            and (r.labels.get("arm") == over if over else _is_linear_rival(r))
            and int(r.labels["tokens"] or 0) >= least_tokens
        ]
        turned = [replace(r, value=1 / float(r.value or 1.0), interval=_inverse(r)) for r in found]
        return _least(turned, confidence)

    return measure


def _is_linear_rival(record: Record) -> bool:
    arm = str(record.labels.get("arm"))
    return arm not in (KERFORMER, BY_CONTENT) and family_of(arm_of(arm).mechanism) in LINEAR


def _inverse(record: Record) -> tuple[float, float] | None:
    if record.interval is None:
        return None
    low, high = record.interval
    return 1 / float(high), 1 / float(low)


def _least(records: Sequence[Record], confidence: float) -> Found:
    """The least of several ratios."""
    together = at_once(confidence, len(records))
    return least(
        [_at(record, confidence) for record in records],
        [_at(record, together) for record in records],
    )


def _at(record: Record, confidence: float) -> Found:
    """A ratio with its interval at a confidence, as if its logarithm were normal."""
    value, interval = float(record.value or 0.0), record.interval
    if interval is None:
        return value, None
    return value, widened(value, interval, confidence, scale="log")


def least(found: Iterable[Found], wide: Iterable[Found]) -> Found:
    """The least of several: ``wide`` are the same with intervals that hold for all at once."""
    one, all_ = ([each and Estimate(*each) for each in group] for group in (found, wide))
    estimate = least_of(one, all_)
    return None if estimate is None else (estimate.value, estimate.interval)


def speed_up(records: Records, arm: str, confidence: float = 0.95) -> Found:
    """An arm's training speed over softmax's at the longest length both were timed at."""
    ups = {
        int(r.labels["tokens"] or 0): r
        for r in records
        if r.name == "speed_up"
        and r.labels.get("kind") == "training"
        and r.labels.get("over") == DENSE
        and r.labels.get("arm") == arm
    }
    if not ups:
        return None
    return _at(ups[max(ups)], confidence)


def peak_share(records: Records, arm: str, rival: str) -> Found:
    """The peak memory of a training step over a rival's."""
    peaks = {
        str(r.labels["arm"]): float(r.value or 0.0)
        for r in records
        if r.name == "peak_bytes"
        and r.labels.get("question") == "speed"
        and r.labels.get("kind") == "training"
    }
    if not peaks.get(arm) or not peaks.get(rival):
        return None
    share = peaks[arm] / peaks[rival]
    return share, (share, share)


def longest_bytes(records: Records, confidence: float = 0.95) -> Found:
    """The least peak of a forward pass over 65,536 tokens of a linear mechanism."""
    found = [
        float(r.value or 0.0)
        for r in records
        if r.name == "peak_bytes"
        and r.labels.get("kind") == "inference"
        and int(r.labels["tokens"] or 0) >= 65_536
        and family_of(arm_of(str(r.labels["arm"])).mechanism) in LINEAR
    ]
    return (min(found), (min(found), min(found))) if found else None


def million(records: Records, confidence: float = 0.95) -> Found:
    """The longest sequence that kerformer was run on alone; None where none so long was asked."""
    ours = [r for r in records if r.labels.get("arm") == BY_CONTENT]
    lengths = {
        name: [float(r.labels["tokens"] or 0) for r in ours if r.name == name]
        for name in ("latency_ms", "not_run")
    }
    found = lengths["latency_ms"]
    if not found or max([*found, *lengths["not_run"]]) < MILLION:
        return None
    return max(found), (max(found), max(found))
