"""The verdict in two sentences: the attention to use, and the length where that changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast

from sparing.compare.claims import Speed
from sparing.compare.page import lookups, prose
from sparing.compare.page.tables import crossing_words
from sparing.core.record import Record
from sparing.report import wording
from sparing.report.facts import dense_name
from sparing.report.run import Run

Decision = Literal["use", "depends", "keep dense", "undecided"]
Decided = tuple[Decision, str | None, str, str]
"""The decision, the variant it names, the advice in a few words, and why."""


@dataclass(frozen=True)
class Verdict:
    """What to do: the decision, the variant it names, and two sentences.

    The first sentence is ``lead`` (the advice in a few words) and ``because``.
    """

    decision: Decision
    arm: str | None
    lead: str
    because: str
    second: str

    @property
    def first(self) -> str:
        """The first sentence."""
        return self.lead + self.because

    def __str__(self) -> str:
        return f"{self.first} {self.second}"


@dataclass(frozen=True)
class _Compared:
    """One variant against the baseline: its accuracy's verdict and its speed here."""

    arm: str
    accuracy: str | None
    difference: Record | None
    speed: Speed | None
    latency: Record | None
    failed: bool
    disturbance: str = ""

    @property
    def name(self) -> str:
        """The variant's name, shortened."""
        return wording.shortened(self.arm, 40)

    @property
    def sound(self) -> bool:
        """Whether the accuracy is known not to be worse."""
        return self.accuracy in ("better", "no worse")

    @property
    def pending(self) -> bool:
        """Whether something was not measured."""
        return self.accuracy is None or self.speed is None

    @property
    def open(self) -> bool:
        """Whether something missing or undecided could still make it the variant to use."""
        if self.failed or self.accuracy == "worse" or self.speed == "slower":
            return False
        return self.pending or (self.accuracy == "undecided" and self.speed == "faster")

    @property
    def ratio(self) -> float:
        """Its time as a share of the baseline's; infinite where it was not measured."""
        value = self.latency.value if self.latency is not None else None
        return float("inf") if value is None else value

    @property
    def gained(self) -> float:
        """The difference in accuracy; 0 where it was not measured."""
        return float(self.difference.value or 0.0) if self.difference is not None else 0.0


def decide(run: Run) -> Verdict:
    """Decide from the records alone.

    A variant is used when its accuracy is better or no worse and its whole model is faster, as the
    goals decide both. Times that were taken on a busy machine decide nothing.
    """
    arms = lookups.others(run)
    if not arms:
        gain = _gain(run).removeprefix("; ").capitalize()
        second = f"{gain}." if gain else prose("no-gain")
        because = prose("only-arm", dense=dense_name(run.config))
        return Verdict("undecided", None, "Nothing to compare", because, second)
    second = _second(run)
    compared = [_compare(run, arm) for arm in arms]
    busy = next((one.disturbance for one in compared if one.disturbance), "")
    if busy:
        because = prose("busy", busy=busy)
        return Verdict("undecided", None, "No verdict on speed", because, second)
    return Verdict(*_decide(run, compared), second)


def _compare(run: Run, arm: str) -> _Compared:
    difference = run.table.find("accuracy_difference", arm=arm)
    accuracy = str(difference.labels.get("verdict") or "undecided") if difference else None
    size = lookups.setting(run, "latency_ratio")
    latency = run.table.find("latency_ratio", arm=arm, **size.labels()) if size else None
    disturbance = run.table.disturbance(latency) if latency is not None else ""
    speed: Speed | None = None
    # of the whole model: its core decides nothing
    decided = run.table.find("latency_verdict", arm=arm)
    if decided is not None and latency is not None and latency.interval is not None:
        speed = cast("Speed", decided.labels.get("verdict") or "undecided")
        if wording.ratio(latency.value or 1.0, "faster", "slower") == wording.SAME:
            speed = "undecided"  # what rounds to no difference is none to change a model for
    failed = lookups.arm_failed(run, arm) and (accuracy is None or speed is None)
    return _Compared(arm, accuracy, difference, speed, latency, failed, disturbance)


def _decide(run: Run, compared: list[_Compared]) -> Decided:
    fast = [one for one in compared if one.sound and one.speed == "faster"]
    if fast:
        best = min(fast, key=lambda one: one.ratio)
        return "use", best.arm, f"Use {best.name} here", _because(run, "faster", best)
    better = [one for one in compared if one.accuracy == "better"]
    if better:
        return _more_accurate(run, better)
    waiting = [one for one in compared if one.open]
    return _undecided(run, waiting) if waiting else _keep_dense(run, compared)


def _because(run: Run, key: str, one: _Compared, **values: object) -> str:
    """A reason that names a variant, its speed, its accuracy and the baseline."""
    known = {"arm": one.name, "dense": dense_name(run.config), "accuracy": _accuracy_words(one)}
    speed = _speed_words(run, one) if one.speed is not None else ""
    return prose(key, **known, speed=speed, **values)


def _more_accurate(run: Run, better: list[_Compared]) -> Decided:
    """A variant gains accuracy, and no variant gains speed without losing accuracy."""
    best = max(better, key=lambda one: (one.speed == "undecided", one.gained))
    if best.speed == "slower":
        lead = f"Use {best.name} only if accuracy counts most"
        return "depends", best.arm, lead, _because(run, "for-accuracy", best)
    key = "unknown-speed" if best.speed is None else "same-speed"
    return "use", best.arm, f"Use {best.name} here", _because(run, key, best)


def _undecided(run: Run, waiting: list[_Compared]) -> Decided:
    pending = [one for one in waiting if one.pending]
    if pending:
        names, lack = wording.listing([one.name for one in pending]), "lack"
        lack += "s" if len(pending) == 1 else ""
        because = prose("waiting", arms=names, lack=lack, dense=dense_name(run.config))
        return "undecided", None, "Nothing is decided yet", because
    because = _because(run, "open", _fastest(run, waiting))
    return "undecided", None, "Nothing is decided", because


def _keep_dense(run: Run, compared: list[_Compared]) -> Decided:
    because, limit = prose("none-measured"), ""
    timed = [one for one in compared if one.speed is not None]
    if timed:
        best = _fastest(run, timed)
        key = {"faster": "less-accurate", "slower": "slower"}.get(str(best.speed), "none-faster")
        if key == "slower" and timed[1:]:
            key = "fastest-slower"
            limit = "" if best.ratio == min(one.ratio for one in timed) else " that is no control"
        because = _because(run, key, best, limit=limit)
    return "keep dense", run.config["baseline"], f"Keep {dense_name(run.config)} here", because


def _fastest(run: Run, compared: list[_Compared]) -> _Compared:
    """The fastest variant that is no control, if there is any; else the fastest control."""
    families = run.config.get("families")
    known = families if isinstance(families, dict) else {}
    serious = [one for one in compared if known.get(one.arm) != "control"]
    return min(serious or compared, key=lambda one: one.ratio)


def _speed_words(run: Run, one: _Compared) -> str:
    """Such as: makes the whole model 1.3x faster than dense at 65 tokens."""
    size = lookups.setting(run, "latency_ratio")
    assert size is not None
    assert one.latency is not None
    assert one.latency.interval is not None
    return prose(
        "speed-undecided" if one.speed == "undecided" else "speed",
        factor=wording.ratio(one.ratio, "faster", "slower"),
        interval=wording.ratio_interval(one.latency.interval),
        dense=dense_name(run.config),
        tokens=wording.length(size.tokens),
    )


def _accuracy_words(one: _Compared) -> str:
    """Such as: accuracy is equivalent (-0.1 points, -0.6 to +0.4)."""
    if one.difference is None or one.difference.value is None:
        return "accuracy was not measured"
    value, interval = one.difference.value, one.difference.interval
    spread = "" if interval is None else ", " + wording.points_interval(value, interval)
    known = one.accuracy if one.accuracy in ("better", "worse", "no worse") else "undecided"
    return f"accuracy is {known} ({wording.points(value, *(interval or ()))} points{spread})"


def _second(run: Run) -> str:
    """From which length on the picture changes, and how much attention could give at most."""
    if lookups.curves_disturbed(run):
        return prose("busy-curves")
    arms, gain = lookups.others(run), _gain(run)
    newest = [record for arm in arms if (record := lookups.crossover(run, arm))]
    crossing = [record for record in newest if record.value is not None]
    if crossing:
        return _crossing(run, crossing, gain)
    longest = [t for r in newest if isinstance(t := r.labels.get("longest_tokens"), int)]
    known = {record.labels.get("arm") for record in newest}
    if longest and {arm for arm in arms if not lookups.arm_failed(run, arm)} <= known:
        tokens = wording.length(min(longest))
        return prose("never-faster", dense=dense_name(run.config), tokens=tokens, gain=gain)
    return prose("crossing-unknown", gain=gain)


def _crossing(run: Run, records: list[Record], gain: str) -> str:
    """The first variant to cross without lost accuracy; with it, only as a last resort."""
    ordered = sorted(records, key=lambda r: float(r.value or 0))
    worse = [record for record in ordered if _is_worse(run, record)]
    first = next((record for record in ordered if record not in worse), ordered[0])
    at, here = float(first.value or 0), lookups.task_tokens(run)
    before = next((record for record in worse if float(record.value or 0) < at), None)
    arm = str(first.labels["arm"])
    return prose(
        "faster-here" if here is not None and at <= here else "faster-from",
        arm=wording.shortened(arm, 40),
        dense=dense_name(run.config),
        tokens=crossing_words(run, arm),
        price=", though it lost accuracy here" if first in worse else "",
        earlier=_earlier(run, before),
        gain=gain,
    )


def _earlier(run: Run, record: Record | None) -> str:
    """A variant that crosses before, but is already less accurate here."""
    if record is None:
        return ""
    arm = str(record.labels["arm"])
    name = wording.shortened(arm, 40)
    return f" {prose('earlier', arm=name, tokens=crossing_words(run, arm))}"


def _gain(run: Run) -> str:
    """What any attention could give at most at the longest length measured."""
    lengths = lookups.lengths(run, "attention_share")
    share = run.table.find("attention_share", tokens=lengths[-1]) if lengths else None
    if share is None or share.value is None or run.table.disturbance(share):
        return ""
    gain, most = run.table.find("largest_gain", tokens=lengths[-1]), ""
    if gain is not None and gain.value is not None:
        most = prose("gain-most", factor=wording.factor(gain.value))
        if gain.interval is not None:
            most += f" (95 % interval {wording.ratio_interval(gain.interval)})"
    tokens, part = wording.length(lengths[-1]), wording.share_of_gain(share.value)
    return f"; {prose('gain', tokens=tokens, share=part, most=most)}"


def _is_worse(run: Run, record: Record) -> bool:
    difference = run.table.find("accuracy_difference", arm=record.labels["arm"])
    return difference is not None and difference.labels.get("verdict") == "worse"
