"""The verdict on a slimmed model: target reached or not, other plans, the guarantee.

The study decides whether a goal is met; this module puts it into words.
"""

from __future__ import annotations

from dataclasses import dataclass

from sparing.core.record import Record
from sparing.core.rounding import rounded_down
from sparing.report import wording
from sparing.report.figures.chart import Interval
from sparing.report.run import Run
from sparing.report.sections import Verdict
from sparing.slim.page import lookups, prose
from sparing.slim.page.lookups import number_of
from sparing.slim.page.wording import (
    engine_name,
    per_cent,
    score_name,
    share_between,
    speed_interval,
    speed_text,
    times,
    upper_share,
)


@dataclass(frozen=True)
class _Goal:
    """A declared goal: its verdict, value and interval; ``note`` is why it is not decided."""

    met: bool | str
    value: float
    interval: Interval
    note: str = ""


def decide(run: Run) -> Verdict:
    """The verdict from goals and records; without decided goals there is none."""
    speed, kept_share = _goal(run, "speed over"), _goal(run, "share of")
    promise = _guarantee(run)
    if speed is None or kept_share is None:
        stage = "a step failed" if run.failed else "the run is not at its end"
        because = f": {stage}, and nothing was verified on test inputs."
        return Verdict("No verdict yet", because, _said(_offer(run), promise))
    kept_words = _kept_words(run, kept_share)
    if speed.note:
        because = f": the goal is {speed.note}; the slim model {kept_words}."
        return Verdict("No verdict on speed", because, _said(promise))
    verdicts = {speed.met, kept_share.met}
    target = f"The target of {times(lookups.target(run))} at {per_cent(lookups.floor(run))}"
    batch = lookups.batches(run)[0]
    because = f": at batch {batch} the slim model {_speed_words(run, speed)} and {kept_words}."
    if verdicts == {True}:
        return Verdict(_reached(run), because, _said(promise))
    if False in verdicts:
        return Verdict(f"{target} is not reached", because, _said(_offer(run), promise))
    lead = f"Whether {target[0].lower()}{target[1:]} is reached is undecided"
    return Verdict(lead, because, _said(_open(speed, kept_share), _offer(run), promise))


def _reached(run: Run) -> str:
    """Reached, in full or without the largest rate of disagreement that was set."""
    bound = lookups.disagreement(run)
    refused = bound is not None and bound.labels.get("kept") is False
    return "Target reached, but not the guarantee" if refused else "Target reached"


def _said(*sentences: str) -> tuple[str, ...]:
    return tuple(sentence for sentence in sentences if sentence)


def _goal(run: Run, begins: str) -> _Goal | None:
    """A goal by how its name begins; None where it was not measured."""
    named = [goal for goal in run.goals if str(goal.get("name")).startswith(begins)]
    value = named[0].get("value") if named else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    met, ends = named[0].get("met", "undecided"), named[0].get("interval")
    interval = (float(ends[0]), float(ends[1])) if ends else None
    return _Goal(met, float(value), interval, str(named[0].get("note") or ""))


def _speed_words(run: Run, goal: _Goal) -> str:
    """How fast, against what, and in which engines."""
    words = speed_text(goal.value, goal.interval)
    clear = "neither clearly faster nor slower" if words == "no clear difference" else words
    if words == wording.SAME:
        clear = "as fast as" if goal.interval is None else "neither faster nor slower"
    interval = f"{speed_interval(goal.interval)}; " if goal.interval else ""
    return f"is {clear} than the fastest dense form ({interval}{_engines(run)})"


def _engines(run: Run) -> str:
    form, baseline = lookups.fastest(run), lookups.reference(run, lookups.batches(run)[0])
    if form is None or baseline is None:
        return "engine unknown"
    ours, dense = engine_name(form.labels.get("engine")), engine_name(baseline.engine)
    return f"both in {ours}" if ours == dense else f"{ours} against {dense}"


def _kept_words(run: Run, goal: _Goal) -> str:
    """The share of the score kept, with the bound that decides it."""
    text = f"keeps {wording.share(goal.value)} of its {score_name(run)}"
    if goal.interval is None:
        return text
    if goal.met is True:
        return f"{text} (at least {wording.share(rounded_down(goal.interval[0], 3))})"
    return f"{text} ({share_between(goal.interval)})"


def _open(speed: _Goal, kept_share: _Goal) -> str:
    """Which goals are undecided."""
    named = [("the speed", speed), ("the score kept", kept_share)]
    undecided = [name for name, goal in named if goal.met not in (True, False)]
    return prose(
        f"open-{'one' if len(undecided) == 1 else 'both'}", goals=wording.listing(undecided)
    )


def _offer(run: Run) -> str:
    """Two other plans of the frontier: the fastest that keeps the floor, the best fast one."""
    dense, trials = lookups.dense_score(run), lookups.trials(run)
    if not dense or not trials or any(map(run.table.disturbance, trials)):
        return ""
    least, target = lookups.floor(run) * dense, lookups.target(run)
    good = [trial for trial in trials if _score(trial) >= least]
    fast = [trial for trial in trials if (trial.value or 0.0) >= target]
    best = max(good, key=lambda t: t.value or 0.0) if good else max(trials, key=_score)
    words = _trial_words(run, best, dense)
    offer = prose("offer-good" if good else "offer-none-good", best=words)
    speedy = prose("offer-none-fast", target=times(target))
    if fast:
        kept_share = wording.share(_score(max(fast, key=_score)) / dense)
        speedy = prose("offer-fast", target=times(target), share=kept_share)
    return prose("offer", split=lookups.split(run), good=offer, fast=speedy)


def _score(trial: Record) -> float:
    return number_of(trial, "score")


def _trial_words(run: Run, trial: Record, dense: float) -> str:
    speed = speed_text(trial.value or 0.0, trial.interval)
    clear = speed.endswith(("faster", "slower"))
    ran = f"and was {speed}" if clear else "without a clear difference in time"
    text = f"{wording.share(_score(trial) / dense)} of the dense {score_name(run)}"
    return f"{text} {ran} ({speed_interval(trial.interval)})"


def _guarantee(run: Run) -> str:
    """The guarantee about answers that differ from the dense model's.

    A plan that was fixed beforehand has its bound, with the counts behind it.
    """
    bound = lookups.disagreement(run)
    if bound is None or bound.value is None:
        return ""
    promise, delta = bound.labels.get("promise"), bound.labels.get("delta")
    if isinstance(promise, str) and promise:
        lead = "Guarantee" if bound.labels.get("kept") is True else "Not the guarantee that was set"
        return f"{lead}: {promise}."
    sure = per_cent(1 - delta) if isinstance(delta, float) else "unknown"
    seen, most = bound.labels.get("disagreements"), upper_share(bound.value)
    return f"Guarantee: {prose('bound', sure=sure, most=most, seen=seen, count=bound.count)}."
