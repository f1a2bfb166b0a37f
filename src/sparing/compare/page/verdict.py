"""The verdict in two sentences: what to use here, and from which length on that changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, cast

from sparing.compare.claims import Speed
from sparing.compare.page.missing import arm_failed
from sparing.compare.page.results import Results
from sparing.compare.page.tables import crossing_words
from sparing.core.record import Record
from sparing.report import wording
from sparing.report.cells import Failed
from sparing.report.facts import dense_name
from sparing.report.run import Config

Decision = Literal["use", "depends", "keep dense", "undecided"]


@dataclass(frozen=True)
class Verdict:
    """What to do: the decision, the arm it names, and two sentences.

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
class _Judged:
    """One arm against the baseline: its accuracy's verdict and its speed here."""

    arm: str
    accuracy: str | None
    difference: Record | None
    speed: Speed | None
    latency: Record | None
    failed: bool
    disturbance: str = ""

    @property
    def sound(self) -> bool:
        """Whether the accuracy is known not to be worse."""
        return self.accuracy in ("better", "no worse")

    @property
    def open(self) -> bool:
        """Whether something missing or undecided could still make it the arm to use."""
        if self.failed or self.accuracy == "worse" or self.speed == "slower":
            return False
        undecided = self.accuracy == "undecided" and self.speed == "faster"
        return undecided or self.accuracy is None or self.speed is None

    @property
    def ratio(self) -> float:
        """Its time as a share of the baseline's; infinite where it was not measured."""
        value = self.latency.value if self.latency is not None else None
        return float("inf") if value is None else value


def decide(records: Sequence[Record], config: Config, failed: Failed = ()) -> Verdict:
    """Decide from the records alone.

    An arm is used when its accuracy is better or no worse and its whole model is faster, as the
    goals decide both; nothing is decided from times that were taken while the machine was busy.
    """
    results = Results(records, config)
    if not results.others:
        because = f": {dense_name(config)} is the only arm of this run."
        gain = _gain(results).removeprefix("; ").capitalize()
        second = f"{gain}." if gain else "What any attention could give was not measured."
        return Verdict("undecided", None, "Nothing to compare", because, second)
    second = _second(results, failed)
    judged = [_judge(results, arm, failed) for arm in results.others]
    busy = next((one.disturbance for one in judged if one.disturbance), "")
    if busy:
        because = f": the machine was busy while latency was measured ({busy}); measure again when "
        return Verdict("undecided", None, "No verdict on speed", because + "it is quiet.", second)
    decision, arm, lead, because = _decide(results, judged)
    return Verdict(decision, arm, lead, because, second)


def _judge(results: Results, arm: str, failed: Failed) -> _Judged:
    difference = results.find("accuracy_difference", arm=arm)
    accuracy = str(difference.labels.get("verdict") or "undecided") if difference else None
    setting = results.setting("latency_ratio")
    latency = results.find("latency_ratio", arm=arm, **setting.labels()) if setting else None
    disturbance = results.disturbance(latency) if latency is not None else ""
    speed: Speed | None = None
    decided = results.find(
        "latency_verdict", arm=arm
    )  # of the whole model: its core decides nothing
    if decided is not None and latency is not None and latency.interval is not None:
        speed = cast("Speed", decided.labels.get("verdict") or "undecided")
        if wording.ratio(latency.value or 1.0, "faster", "slower") == wording.SAME:
            speed = "undecided"  # what rounds to no difference is none to change a model for
    broken = arm_failed(arm, failed) and (accuracy is None or speed is None)
    return _Judged(arm, accuracy, difference, speed, latency, broken, disturbance)


def _decide(results: Results, judged: list[_Judged]) -> tuple[Decision, str | None, str, str]:
    fast = [one for one in judged if one.sound and one.speed == "faster"]
    if fast:
        best = min(fast, key=lambda one: one.ratio)
        because = f": it {_speed_words(results, best)}, and its {_accuracy_words(best)}."
        return "use", best.arm, f"Use {_name(best.arm)} here", because
    better = [one for one in judged if one.accuracy == "better"]
    if better:
        return _more_accurate(results, better)
    waiting = [one for one in judged if one.open]
    if waiting:
        return _undecided(results, waiting)
    return _keep_dense(results, judged)


def _more_accurate(
    results: Results, better: list[_Judged]
) -> tuple[Decision, str | None, str, str]:
    """Somebody gains accuracy, nobody gains speed without losing accuracy."""
    best = max(better, key=lambda one: (one.speed == "undecided", _difference(one)))
    dense = dense_name(results.config)
    if best.speed == "slower":
        lead = f"Use {_name(best.arm)} only if accuracy counts most"
        because = f": its {_accuracy_words(best)}, but it {_speed_words(results, best)}; "
        return "depends", best.arm, lead, because + f"for speed keep {dense}."
    price = "and no difference in speed was found"
    if best.speed is None:
        price = "and its speed on the whole model was not measured yet"
    return (
        "use",
        best.arm,
        f"Use {_name(best.arm)} here",
        f": its {_accuracy_words(best)}, {price}.",
    )


def _undecided(results: Results, waiting: list[_Judged]) -> tuple[Decision, str | None, str, str]:
    keep = f"keep {dense_name(results.config)} until more is known"
    pending = [one for one in waiting if one.accuracy is None or one.speed is None]
    if pending:
        names = wording.listing([_name(one.arm) for one in pending])
        because = f": {names} still {'lacks' if len(pending) == 1 else 'lack'} measurements and "
        return "undecided", None, "Nothing is decided yet", f"{because}no other arm wins; {keep}."
    best = _fastest(results, waiting)
    because = f": {_name(best.arm)} {_speed_words(results, best)}, but its "
    because += f"{_accuracy_words(best)}; {keep}."
    return "undecided", None, "Nothing is decided", because


def _keep_dense(results: Results, judged: list[_Judged]) -> tuple[Decision, str | None, str, str]:
    dense = dense_name(results.config)
    lead = f"Keep {dense} here"
    timed = [one for one in judged if one.speed is not None]
    if not timed:
        return "keep dense", results.baseline, lead, ": no other arm could be measured."
    best = _fastest(results, timed)
    if best.speed == "faster":
        because = f": {_name(best.arm)} {_speed_words(results, best)}, but its "
        because += f"{_accuracy_words(best)}."
    elif best.speed == "slower":
        subject = _name(best.arm)
        if timed[1:]:
            limit = "" if best.ratio == min(one.ratio for one in timed) else " that is no control"
            subject = f"even the fastest other arm{limit}, {subject},"
        because = f": {subject} {_speed_words(results, best)}."
    else:
        because = f": no other arm is clearly faster; the nearest, {_name(best.arm)}, "
        because += f"{_speed_words(results, best)}."
    return "keep dense", results.baseline, lead, because


def _fastest(results: Results, judged: list[_Judged]) -> _Judged:
    """The fastest arm that is no control, if there is any: nobody hopes for a control."""
    families = results.config.get("families")
    known = families if isinstance(families, dict) else {}
    serious = [one for one in judged if known.get(one.arm) != "control"]
    return min(serious or judged, key=lambda one: one.ratio)


def _speed_words(results: Results, one: _Judged) -> str:
    """Such as: makes the whole model 1.3x faster than dense at 65 tokens."""
    setting = results.setting("latency_ratio")
    assert setting is not None
    dense, where = dense_name(results.config), wording.length(setting.tokens)
    assert one.latency is not None
    assert one.latency.interval is not None
    speed = wording.ratio(one.ratio, "faster", "slower")
    spread = wording.ratio_interval(one.latency.interval)
    if one.speed == "undecided":
        return f"takes {spread} the time of {dense} (95 % interval) at {where}"
    return f"makes the whole model {speed} than {dense} (95 % interval {spread}) at {where}"


def _accuracy_words(one: _Judged) -> str:
    """Such as: accuracy is equivalent (-0.1 points, -0.6 to +0.4)."""
    if one.difference is None or one.difference.value is None:
        return "accuracy was not measured"
    value, interval = one.difference.value, one.difference.interval
    spread = "" if interval is None else ", " + wording.points_interval(value, interval)
    numbers = f"({wording.points(value, *(interval or ()))} points{spread})"
    words = {"better": "is better", "worse": "is worse", "no worse": "is no worse"}
    return f"accuracy {words.get(one.accuracy or '', 'is undecided')} {numbers}"


def _second(results: Results, failed: Failed) -> str:
    """From which length on the picture changes, and how much attention could give at most."""
    if results.curves_disturbed:
        return (
            "From which length on this changes is not decided either: the machine was busy while "
            "the attention cores were timed."
        )
    newest = [found for arm in results.others if (found := results.crossover(arm))]
    crossing = [record for record in newest if record.value is not None]
    if crossing:
        return _crossing(results, crossing)
    longest = [t for r in newest if isinstance(t := r.labels.get("longest_tokens"), int)]
    known = {record.labels.get("arm") for record in newest}
    expected = {arm for arm in results.others if not arm_failed(arm, failed)}
    if longest and expected <= known:
        return (
            f"No arm's attention becomes faster than {dense_name(results.config)} up to "
            f"{wording.length(min(longest))}, the longest length measured{_gain(results)}."
        )
    return f"From which length on this changes is not known yet{_gain(results)}."


def _crossing(results: Results, found: list[Record]) -> str:
    """The first arm to cross without having lost accuracy; one that has, only as a last resort."""
    ordered = sorted(found, key=lambda r: (_is_worse(results, r), float(r.value or 0)))
    first, dense = ordered[0], dense_name(results.config)
    arm, at = str(first.labels["arm"]), float(first.value or 0)
    price = ", though it lost accuracy here" if _is_worse(results, first) else ""
    length, short = crossing_words(results, arm), results.task_tokens
    if short is not None and at <= short:
        start = f"The attention core of {_name(arm)} is faster than {dense}'s from "
        start += f"{length} on, so already here{price}"
    else:
        start = f"From {length} on the picture changes: there the attention core "
        start += f"of {_name(arm)} becomes faster than {dense}'s{price}"
        start += _earlier(results, found, at)
    return f"{start}{_gain(results)}."


def _earlier(results: Results, found: list[Record], at: float) -> str:
    """An arm that crosses before, but whose accuracy already is worse here."""
    before = [r for r in found if _is_worse(results, r) and float(r.value or 0) < at]
    if not before:
        return ""
    first = str(min(before, key=lambda r: float(r.value or 0)).labels["arm"])
    length = crossing_words(results, first)
    return f" ({_name(first)}'s already from {length} on, but its accuracy is worse here)"


def _gain(results: Results) -> str:
    """What any attention could give at most at the longest length measured."""
    lengths = results.lengths("attention_share")
    if not lengths:
        return ""
    share = results.find("attention_share", tokens=lengths[-1])
    gain = results.find("largest_gain", tokens=lengths[-1])
    if share is None or share.value is None or results.disturbance(share):
        return ""
    most = ""
    if gain is not None and gain.value is not None:
        most = f", so no attention can make it more than {wording.factor(gain.value)} faster"
        if gain.interval is not None:
            most += f" (95 % interval {wording.ratio_interval(gain.interval)})"
    return (
        f"; at {wording.length(lengths[-1])} attention is {wording.share_of_gain(share.value)} of "
        f"the model's time{most}"
    )


def _is_worse(results: Results, record: Record) -> bool:
    found = results.find("accuracy_difference", arm=record.labels["arm"])
    return found is not None and found.labels.get("verdict") == "worse"


def _difference(one: _Judged) -> float:
    value = one.difference.value if one.difference is not None else None
    return 0.0 if value is None else value


def _name(arm: str) -> str:
    return wording.shortened(arm, 40)
